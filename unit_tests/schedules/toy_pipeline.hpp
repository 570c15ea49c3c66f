#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "schedules/exec/executor.hpp"
#include "schedules/exec/inprocess_channel.hpp"
#include "schedules/exec/toy_stage.hpp"
#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"
#include "schedules/policy/policy.hpp"
#include "schedules/policy/rank_list.hpp"

namespace minipipe::schedules {

// A pipeline of toy stages in one thread, and its calculation by hand. Logs are by stage.
inline double toy_input(std::int64_t microbatch) { return 1 + 0.125 * static_cast<double>(microbatch * 5 % 7); }
inline double toy_weight(int stage) { return 0.75 + 0.0625 * stage; }
constexpr double kToyRate = 0.03125;

class ToyPipeline {
 public:
  // What the executor of a stage sees in place of the toy; null: the toy itself.
  using Wrap = std::function<Stage*(int stage, Stage& toy)>;

  // The schedule's own order, placement and slots.
  explicit ToyPipeline(ScheduleOptions options, int message_slots = 2, Wrap wrap = {})
      : options_(std::move(options)), wrap_(std::move(wrap)) {
    std::vector<std::int64_t> slots;
    for (int s = 0; s < options_.stages; ++s) slots.push_back(activation_slots(options_, s));
    if (is_planned(options_.name)) message_slots = static_cast<int>(*std::max_element(slots.begin(), slots.end()));
    build(slots, message_slots);
    const Placement placement = placement_for(options_);
    for (int rank = 0; rank < placement.ranks; ++rank) set_policies(make_rank_policies(options_, placement, rank));
  }

  // The stages of `options` under the orders of a plan.
  ToyPipeline(ScheduleOptions options, const Plan& plan, const std::vector<std::int64_t>& slots, int message_slots)
      : options_(std::move(options)) {
    build(slots, message_slots);
    for (const ActionList& list : plan.ranks) set_policies(make_rank_list_policies(list));
  }

  void set_policies(std::map<int, std::unique_ptr<Policy>> policies) {
    for (auto& [stage, policy] : policies) executors[index(stage)]->set_policy(std::move(policy));
  }

  void begin_segment(std::int64_t end) {
    for (auto& executor : executors) executor->begin_segment(end);
  }
  std::vector<Executor*> all() const {
    std::vector<Executor*> result;
    for (const auto& executor : executors) result.push_back(executor.get());
    return result;
  }
  const Log& collect_logs() {
    for (std::size_t s = 0; s < executors.size(); ++s) {
      const ActionLog log = executors[s]->take_log();
      logs.ranks[s].insert(logs.ranks[s].end(), log.begin(), log.end());
    }
    return logs;
  }
  std::vector<double> weights() const {
    std::vector<double> result;
    for (const auto& stage : stages) result.push_back(stage->weight());
    return result;
  }

  double now = 0;  // each look at the clock takes a second
  std::vector<std::unique_ptr<ToyStage>> stages;
  std::vector<std::unique_ptr<Executor>> executors;
  Log logs;

 private:
  void build(const std::vector<std::int64_t>& slots, int message_slots) {
    const int n = options_.stages;
    for (int s = 0; s < n; ++s) {
      ToyStage::Options toy{toy_weight(s), kToyRate,  effective_window(options_), slots[index(s)], message_slots,
                            toy_input,     s == n - 1};
      toy.version_used = [this, s](Kind kind, std::int64_t microbatch, std::int64_t now_version, std::int64_t forward) {
        return version_used(options_, s, kind, microbatch, now_version, forward);
      };
      toy.weight_copies = weight_copies(options_, s);
      stages.push_back(std::make_unique<ToyStage>(toy));
    }
    for (int s = 0; s + 1 < n; ++s) {
      ToyStage* upper = stages[index(s)].get();
      ToyStage* lower = stages[index(s + 1)].get();
      down_.push_back(edge(message_slots, upper->activation_out, lower->activation_in));
      up_.push_back(edge(message_slots, lower->gradient_out, upper->gradient_in));
    }
    for (int s = 0; s < n; ++s) {
      StageChannels channels;
      if (s > 0) channels.activation_in = &down_[index(s - 1)]->receiver();
      if (s > 0) channels.gradient_out = &up_[index(s - 1)]->sender();
      if (s + 1 < n) channels.activation_out = &down_[index(s)]->sender();
      if (s + 1 < n) channels.gradient_in = &up_[index(s)]->receiver();
      Stage* seen = wrap_ ? wrap_(s, *stages[index(s)]) : stages[index(s)].get();
      executors.push_back(std::make_unique<Executor>(s, n, slots[index(s)], *seen, channels, [this] { return now += 1; }));
    }
    logs.ranks.resize(index(n));
  }

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static std::unique_ptr<InProcessChannel> edge(int slots, std::vector<double>& from, std::vector<double>& to) {
    return std::make_unique<InProcessChannel>(slots, slots, [&from, &to](int source, int target) {
      to.at(index(target)) = from.at(index(source));
      from.at(index(source)) = -1e300;  // whoever reads a message twice or too late notices
    });
  }

  ScheduleOptions options_;
  Wrap wrap_;
  std::vector<std::unique_ptr<InProcessChannel>> down_, up_;
};

struct ToyResult {
  std::vector<double> weights;
  std::vector<double> losses;
};

using VersionOf = std::function<std::int64_t(int stage, std::int64_t microbatch)>;

// The same training without a pipeline: every forward looks up the weight version that `forward_version` names, every backward
// that of `backward_version`, without one the newest. Microbatch after microbatch, so all versions asked for must exist by
// then.
inline ToyResult serial_toy(int stages, std::int64_t window, std::int64_t microbatches, const VersionOf& forward_version,
                            const VersionOf& backward_version = nullptr) {
  const auto n = static_cast<std::size_t>(stages);
  std::vector<std::vector<double>> history(n);
  for (std::size_t s = 0; s < n; ++s) history[s] = {toy_weight(static_cast<int>(s))};
  std::vector<double> gradient(n, 0);
  ToyResult result;
  for (std::int64_t k = 0; k < microbatches; ++k) {
    std::vector<double> x(n);
    double value = toy_input(k);
    for (std::size_t s = 0; s < n; ++s) {
      x[s] = value;
      value = history[s].at(static_cast<std::size_t>(forward_version(static_cast<int>(s), k))) * value;
    }
    result.losses.push_back(0.5 * value * value);
    for (std::size_t s = n; s-- > 0;) {
      gradient[s] += value * x[s];
      const auto newest = static_cast<std::int64_t>(history[s].size()) - 1;
      const std::int64_t version = backward_version ? backward_version(static_cast<int>(s), k) : newest;
      value = value * history[s].at(static_cast<std::size_t>(version));
    }
    if ((k + 1) % window != 0) continue;
    for (std::size_t s = 0; s < n; ++s) {
      history[s].push_back(history[s].back() - kToyRate * (gradient[s] / static_cast<double>(window)));
      gradient[s] = 0;
    }
  }
  for (const auto& versions : history) result.weights.push_back(versions.back());
  return result;
}

}  // namespace minipipe::schedules
