#include "schedules/exec/toy_stage.hpp"

#include <string>
#include <utility>

#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {
std::size_t index(int slot) { return static_cast<std::size_t>(slot); }
}  // namespace

ToyStage::ToyStage(Options options)
    : activation_in(index(options.message_slots)),
      activation_out(index(options.message_slots)),
      gradient_in(index(options.message_slots)),
      gradient_out(index(options.message_slots)),
      options_(std::move(options)),
      copies_{options_.weight},
      saved_(static_cast<std::size_t>(options_.activation_slots)) {}

std::int64_t ToyStage::version_for(Kind kind, std::int64_t microbatch, std::int64_t forward) const {
  return options_.version_used ? options_.version_used(kind, microbatch, version_, forward) : version_;
}

double ToyStage::weight_of(std::int64_t version) const {
  const std::int64_t age = version_ - version;
  if (age < 0 || age >= static_cast<std::int64_t>(copies_.size())) {
    throw RunError("toy stage: weight version " + std::to_string(version) + " is not kept: the newest is " +
                   std::to_string(version_) + ", and there are " + std::to_string(copies_.size()));
  }
  return copies_[copies_.size() - 1 - static_cast<std::size_t>(age)];
}

void ToyStage::forward(std::int64_t microbatch, int slot, int input, int output) {
  Saved& saved = saved_.at(index(slot));
  saved.version = version_for(Kind::forward, microbatch, 0);
  saved.x = input < 0 ? options_.input(microbatch) : activation_in.at(index(input));
  saved.y = weight_of(saved.version) * saved.x;
  forward_versions_.push_back(saved.version);
  if (options_.last) losses_.push_back(0.5 * saved.y * saved.y);
  if (output >= 0) activation_out.at(index(output)) = saved.y;
}

void ToyStage::backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) {
  Saved& saved = saved_.at(index(slot));
  const std::int64_t version = version_for(Kind::backward_input, microbatch, saved.version);
  const double weight = weight_of(version);
  saved.output_gradient = gradient_input < 0 ? saved.y : gradient_in.at(index(gradient_input));
  backward_versions_.push_back(version);
  if (gradient_output >= 0) gradient_out.at(index(gradient_output)) = saved.output_gradient * weight;
}

void ToyStage::backward_weight(std::int64_t, int slot) {
  const Saved& saved = saved_.at(index(slot));
  gradient_ += saved.output_gradient * saved.x;
}

void ToyStage::update(std::int64_t update) {
  copies_.push_back(copies_.back() - options_.learning_rate * (gradient_ / static_cast<double>(options_.window)));
  if (static_cast<std::int64_t>(copies_.size()) > options_.weight_copies) copies_.pop_front();
  gradient_ = 0;
  version_ = update + 1;
}

}  // namespace minipipe::schedules
