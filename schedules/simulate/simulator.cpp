#include "schedules/simulate/simulator.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <string>

#include "schedules/check/gaps.hpp"
#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

struct SimulatedStage {
  std::unique_ptr<Policy> policy;
  StageState state;
  std::optional<Kind> running;
  double running_until = 0;
  // When the messages of microbatch first + k are there.
  std::vector<double> activations;
  std::vector<double> gradients;
  ActionLog log;
  double busy = 0;
};

class Simulation {
 public:
  Simulation(const Costs& costs, std::vector<std::unique_ptr<Policy>> policies, std::int64_t first_microbatch,
             std::int64_t first_update)
      : costs_(costs), first_(first_microbatch), stages_(policies.size()) {
    check_costs();
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      StageState& state = stages_[s].state;
      stages_[s].policy = std::move(policies[s]);
      state.stage = static_cast<int>(s);
      state.stages = static_cast<int>(stages_.size());
      state.forwards = state.backwards = state.weights = state.segment_begin = state.segment_end = first_microbatch;
      state.updates = first_update;
    }
  }

  void run_segment(std::int64_t end) {
    for (SimulatedStage& stage : stages_) {
      stage.state.segment_begin = stage.state.forwards;
      stage.state.segment_end = end;
    }
    // All that ends at a time is finished before anybody decides what to start at that time.
    wake_.push(now_);
    while (!wake_.empty()) {
      now_ = wake_.top();
      while (!wake_.empty() && wake_.top() == now_) wake_.pop();
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        if (stages_[s].running && stages_[s].running_until <= now_) complete(s);
      }
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        if (!stages_[s].running) start(s);
      }
    }
    for (SimulatedStage& stage : stages_) {
      if (!stage.policy->finished(stage.state) || stage.state.forwards != stage.state.weights) deadlock();
      stage.log.push_back({{Kind::drain, stage.state.stage, stage.state.forwards}, now_, now_, stage.state.updates});
    }
  }

  SimulationResult result() {
    SimulationResult result;
    result.makespan = now_;
    double busy = 0;
    for (SimulatedStage& stage : stages_) {
      result.log.ranks.push_back(std::move(stage.log));
      result.busy.push_back(stage.busy);
      busy += stage.busy;
    }
    for (const ActionList& list : result.log.plan().ranks) {
      const ListMeasures measures = measure(list);
      result.peak_in_flight.push_back(measures.peak_in_flight);
      result.gap_max.push_back(measures.gap_max);
      result.gap_mean.push_back(measures.gap_mean);
    }
    if (now_ > 0) result.bubble_share = 1 - busy / (static_cast<double>(stages_.size()) * now_);
    return result;
  }

 private:
  void check_costs() const {
    for (const auto* list : {&costs_.forward, &costs_.backward_input, &costs_.backward_weight, &costs_.update}) {
      if (list->size() != stages_.size() || std::any_of(list->begin(), list->end(), [](double cost) { return !(cost >= 0); })) {
        throw InputError("simulate: costs need one number of 0 or more per stage, that is " + std::to_string(stages_.size()));
      }
    }
    if (!(costs_.latency >= 0)) throw InputError("simulate: latency must be 0 or more");
  }

  bool is_there(const std::vector<double>& arrivals, std::int64_t microbatch) const {
    const auto index = static_cast<std::size_t>(microbatch - first_);
    return index < arrivals.size() && arrivals[index] <= now_;
  }

  void start(std::size_t s) {
    SimulatedStage& stage = stages_[s];
    StageState& state = stage.state;
    const bool last = s + 1 == stages_.size();
    state.input_ready = s == 0 || is_there(stage.activations, state.forwards);
    state.gradient_ready = state.forwards > state.backwards && (last || is_there(stage.gradients, state.backwards));
    stage.running = stage.policy->next(state);
    if (!stage.running) return;
    const double cost = cost_of(*stage.running, s);
    stage.busy += cost;
    stage.running_until = now_ + cost;
    wake_.push(stage.running_until);
    const Action action{*stage.running, state.stage, number_of(*stage.running, state)};
    stage.log.push_back({action, now_, stage.running_until, state.updates});
  }

  void complete(std::size_t s) {
    SimulatedStage& stage = stages_[s];
    switch (*stage.running) {
      case Kind::forward:
        ++stage.state.forwards;
        if (s + 1 < stages_.size()) deliver(stages_[s + 1].activations);
        break;
      case Kind::update:
        ++stage.state.updates;
        break;
      case Kind::backward_weight:
        ++stage.state.weights;
        break;
      default:
        ++stage.state.backwards;
        if (*stage.running == Kind::backward) ++stage.state.weights;
        if (s > 0) deliver(stages_[s - 1].gradients);
        break;
    }
    stage.running.reset();
  }

  void deliver(std::vector<double>& arrivals) {
    arrivals.push_back(now_ + costs_.latency);
    wake_.push(arrivals.back());
  }

  double cost_of(Kind kind, std::size_t s) const {
    switch (kind) {
      case Kind::forward:
        return costs_.forward[s];
      case Kind::backward:
        return costs_.backward_input[s] + costs_.backward_weight[s];
      case Kind::backward_input:
        return costs_.backward_input[s];
      case Kind::backward_weight:
        return costs_.backward_weight[s];
      default:
        return costs_.update[s];
    }
  }

  static std::int64_t number_of(Kind kind, const StageState& state) {
    if (kind == Kind::forward) return state.forwards;
    if (kind == Kind::backward_weight) return state.weights;
    return kind == Kind::update ? state.updates : state.backwards;
  }

  [[noreturn]] void deadlock() const {
    std::string text = "simulate: deadlock, no stage can go on:";
    for (const SimulatedStage& stage : stages_) {
      const StageState& state = stage.state;
      text += "\n  stage " + std::to_string(state.stage) + ": forwards " + std::to_string(state.forwards) + ", backwards " +
              std::to_string(state.backwards) + ", weight gradients " + std::to_string(state.weights) + ", updates " +
              std::to_string(state.updates) + ", segment ends at " + std::to_string(state.segment_end);
    }
    throw RunError(text);
  }

  const Costs& costs_;
  std::int64_t first_;
  std::vector<SimulatedStage> stages_;
  std::priority_queue<double, std::vector<double>, std::greater<>> wake_;
  double now_ = 0;
};

}  // namespace

Costs Costs::equal(int stages, double forward, double backward_input, double backward_weight, double update, double latency) {
  const auto n = static_cast<std::size_t>(stages);
  return {std::vector<double>(n, forward), std::vector<double>(n, backward_input), std::vector<double>(n, backward_weight),
          std::vector<double>(n, update), latency};
}

SimulationResult simulate(const ScheduleOptions& options, const Costs& costs, std::int64_t microbatches,
                          std::vector<std::int64_t> segment_ends) {
  validate(options);
  segment_ends.push_back(microbatches);
  for (std::size_t i = 0; i < segment_ends.size(); ++i) {
    const std::int64_t before = i == 0 ? 0 : segment_ends[i - 1];
    if (segment_ends[i] > before && segment_ends[i] % options.window == 0) continue;
    throw InputError("simulate: segment end " + std::to_string(segment_ends[i]) + " must be above " + std::to_string(before) +
                     " and a multiple of the " + std::to_string(options.window) + " microbatches per update");
  }
  std::vector<std::unique_ptr<Policy>> policies;
  for (int stage = 0; stage < options.stages; ++stage) policies.push_back(make_policy(options, stage));
  Simulation simulation(costs, std::move(policies), 0, 0);
  for (const std::int64_t end : segment_ends) simulation.run_segment(end);
  return simulation.result();
}

SimulationResult simulate(const Plan& plan, const Costs& costs) {
  if (plan.ranks.empty()) throw InputError("simulate: the plan has no ranks");
  std::vector<std::unique_ptr<Policy>> policies;
  std::int64_t first = -1, first_update = -1, end = 0;
  for (const ActionList& list : plan.ranks) {
    for (const Action& action : list) {
      if (action.kind == Kind::forward) {
        first = first < 0 ? action.microbatch : std::min(first, action.microbatch);
        end = std::max(end, action.microbatch + 1);
      }
      if (action.kind == Kind::update && (first_update < 0 || action.microbatch < first_update))
        first_update = action.microbatch;
    }
    policies.push_back(make_list_policy(list));
  }
  if (first < 0) throw InputError("simulate: the plan has no forwards");
  Simulation simulation(costs, std::move(policies), first, std::max<std::int64_t>(first_update, 0));
  simulation.run_segment(end);
  return simulation.result();
}

}  // namespace minipipe::schedules
