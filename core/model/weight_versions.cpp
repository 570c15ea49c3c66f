#include "core/model/weight_versions.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/kernels/elementwise.hpp"
#include "core/optim/pipemare.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

double pipemare_delay(const KokkosStageOptions& options) {
  if (options.pipemare.delay >= 0) return options.pipemare.delay;
  return (2.0 * (options.stages - 1 - options.stage) + 1) / static_cast<double>(options.window);
}

int extra_weight_buffers(const KokkosStageOptions& options) {
  switch (options.weight_rule) {
    case WeightRule::current:
      return 0;
    case WeightRule::stashed:
      return std::max(options.weight_copies, 1) - 1;
    case WeightRule::double_buffered:
      return 1;
    case WeightRule::corrected:
      return 2;
  }
  return 0;
}

int weight_arrays(const KokkosStageOptions& options) {
  return 1 + extra_weight_buffers(options) - (options.weight_rule == WeightRule::corrected ? 1 : 0);
}

WeightVersions::WeightVersions(const ExecutionSpace& space, const KokkosStageOptions& options, ParameterStore& store)
    : space_(space),
      rule_(options.weight_rule),
      window_(options.window),
      synchronous_updates_(options.synchronous_updates),
      delay_(pipemare_delay(options)),
      gamma_(pipemare_gamma(options.pipemare.decay, delay_)),
      store_(store),
      buffers_{store.parameters()} {
  if (rule_ == WeightRule::stashed) {
    if (options.weight_copies < 1) throw InputError("a stage that stashes weights needs room for at least one version");
    live_.assign(static_cast<std::size_t>(options.activation_slots), -1);
  }
  if (rule_ == WeightRule::corrected && !(options.pipemare.decay > 0 && options.pipemare.decay < 1)) {
    throw InputError("PipeMare's decay is " + std::to_string(options.pipemare.decay) + ": it must lie between 0 and 1");
  }
  for (int i = 1; i < weight_arrays(options); ++i) {
    memory_.emplace_back("minipipe::model::weight_version", store.parameters().size());
    buffers_.push_back(memory_.back());
    copy<float>(space_, buffers_.back(), store.parameters());
  }
  changes_.assign(buffers_.size(), 0);
  if (has_velocity()) velocity_ = OwnedVector<float>("minipipe::model::weight_velocity", store.parameters().size());
}

int WeightVersions::for_forward(std::int64_t microbatch, int slot) {
  if (rule_ == WeightRule::stashed) {
    live_.at(slot) = version_;
    return 0;
  }
  if (rule_ != WeightRule::double_buffered) return 0;
  const std::int64_t window = microbatch / window_;
  const std::int64_t wanted = window < synchronous_updates_ ? window : std::max(window - 1, synchronous_updates_);
  if (wanted == version_) return 0;
  if (wanted == version_ - 1) return 1;
  throw RunError("microbatch " + std::to_string(microbatch) + " is to use weight version " + std::to_string(wanted) +
                 ", but the stage has version " + std::to_string(version_) + " and the one before it");
}

int WeightVersions::for_backward(std::int64_t microbatch, int slot) {
  if (rule_ == WeightRule::double_buffered) return for_forward(microbatch, slot);
  if (rule_ == WeightRule::corrected) return microbatch / window_ < synchronous_updates_ ? 0 : 1;
  if (rule_ == WeightRule::current) return 0;
  const std::int64_t wanted = live_.at(slot);
  if (wanted < 0) throw RunError("microbatch " + std::to_string(microbatch) + " has no forward in its slot");
  live_[slot] = -1;
  return wanted == version_ ? 0 : older(wanted);
}

void WeightVersions::before_update() {
  if (rule_ == WeightRule::current) return;
  int target = 1;
  if (rule_ == WeightRule::stashed) {
    if (std::find(live_.begin(), live_.end(), version_) == live_.end()) return;
    const auto in_the_way = [&](std::int64_t version) {
      return version >= 0 && version < version_ && older(version) == older(version_);
    };
    if (buffers() == 1 || std::any_of(live_.begin(), live_.end(), in_the_way)) {
      throw RunError("there is room for " + std::to_string(buffers()) +
                     " weight versions on this stage, but microbatches in flight need more");
    }
    target = older(version_);
  }
  copy<float>(space_, buffers_[target], buffers_[0]);
  ++changes_[target];
}

void WeightVersions::after_update(std::int64_t update) {
  version_ = update + 1;
  ++changes_[0];
  if (rule_ == WeightRule::corrected) {
    pipemare_correct<float>(space_, velocity_, buffers_[1], buffers_[0], gamma_, delay_);
    ++changes_[1];
  }
}

void WeightVersions::start_at(std::int64_t updates) {
  version_ = updates;
  std::fill(live_.begin(), live_.end(), -1);
  for (std::int64_t& count : changes_) ++count;
  if (rule_ == WeightRule::corrected) {
    // A step of length zero with gamma = 1 leaves the velocity as it is and forms the corrected weights.
    copy<float>(space_, buffers_[1], buffers_[0]);
    pipemare_correct<float>(space_, velocity_, buffers_[1], buffers_[0], 1.0, delay_);
  }
}

const ParameterEntry& WeightVersions::entry_with(bool there, std::size_t entry) const {
  if (!there) throw RunError("the stage's weight rule has no such state");
  return store_.entries().at(entry);
}

std::vector<float> WeightVersions::shadow(std::size_t entry) const {
  return read_entry(buffers_.back(), entry_with(has_shadow(), entry));
}
void WeightVersions::set_shadow(std::size_t entry, const std::vector<float>& values) {
  write_entry(buffers_.back(), entry_with(has_shadow(), entry), values);
  ++changes_.back();
}
std::vector<float> WeightVersions::velocity(std::size_t entry) const {
  return read_entry(velocity_, entry_with(has_velocity(), entry));
}
void WeightVersions::set_velocity(std::size_t entry, const std::vector<float>& values) {
  write_entry(velocity_, entry_with(has_velocity(), entry), values);
}

std::size_t WeightVersions::bytes() const {
  std::size_t floats = velocity_.size();
  for (const auto& memory : memory_) floats += memory.size();
  return floats * sizeof(float);
}

}  // namespace minipipe::core
