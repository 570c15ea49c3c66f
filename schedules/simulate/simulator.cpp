#include "schedules/simulate/simulator.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>

#include "schedules/error.hpp"
#include "schedules/policy/rank_list.hpp"
#include "schedules/policy/versions.hpp"

namespace minipipe::schedules {
namespace {

using Policies = std::map<int, std::unique_ptr<Policy>>;  // by stage

struct SimulatedStage {
  std::unique_ptr<Policy> policy;
  StageState state;
  // When the messages of microbatch first + k are there.
  std::vector<double> activations;
  std::vector<double> gradients;
  // By microbatch, the version its forward used; and what the result says of the stage.
  std::vector<std::int64_t> forward_versions;
  std::int64_t live = 0, peak = 0;
  std::int64_t gaps = 0, gap_sum = 0, gap_max = 0;
};

struct SimulatedRank {
  std::vector<int> stages;
  std::size_t turn = 0;  // the stage asked first
  std::optional<Action> running;
  double running_until = 0;
  ActionLog log;
  double busy = 0;
  std::int64_t live = 0, peak = 0;
};

class Simulation {
 public:
  Simulation(const ScheduleOptions& options, const Costs& costs, const Placement& placement, Policies policies,
             std::int64_t first_microbatch, std::int64_t first_update)
      : options_(options),
        costs_(costs),
        placement_(placement),
        first_(first_microbatch),
        stages_(placement.rank_of_stage.size()),
        ranks_(static_cast<std::size_t>(placement.ranks)) {
    check_costs();
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const int stage = static_cast<int>(s);
      StageState& state = stages_[s].state;
      stages_[s].policy = std::move(policies.at(stage));
      state.stage = stage;
      state.stages = static_cast<int>(stages_.size());
      state.forwards = state.backwards = state.weights = state.segment_begin = state.segment_end = first_microbatch;
      state.updates = first_update;
      rank_of(s).stages.push_back(stage);
    }
  }

  void run_segment(std::int64_t end) {
    for (SimulatedStage& stage : stages_) {
      stage.state.segment_begin = stage.state.forwards;
      stage.state.segment_end = end;
    }
    for (SimulatedRank& rank : ranks_) {
      if (rank.stages.empty()) continue;
      const std::int64_t begin = stages_[static_cast<std::size_t>(rank.stages.front())].state.segment_begin;
      rank.log.reserve(rank.log.size() +
                       2 * rank.stages.size() * static_cast<std::size_t>(std::max<std::int64_t>(0, end - begin)));
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r) wake_.emplace(now_, r);
    // All that ends at a time is finished before anybody decides what to start at that time. Policies decide from what their
    // own rank knows, so only ranks where something ended or arrived are asked.
    while (!wake_.empty()) {
      now_ = wake_.top().first;
      awake_.clear();
      while (!wake_.empty() && wake_.top().first == now_) {
        awake_.push_back(wake_.top().second);
        wake_.pop();
      }
      // Grows while messages that take no time arrive.
      for (std::size_t i = 0; i < awake_.size(); ++i) {
        SimulatedRank& rank = ranks_[awake_[i]];
        if (rank.running && rank.running_until <= now_) complete(rank);
      }
      for (const std::size_t r : awake_) {
        SimulatedRank& rank = ranks_[r];
        for (std::size_t k = 0; k < rank.stages.size() && !rank.running; ++k) start(r);
      }
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const SimulatedStage& stage = stages_[s];
      if (!stage.policy->finished(stage.state) || stage.state.forwards != stage.state.weights) deadlock();
      rank_of(s).log.push_back({{Kind::drain, stage.state.stage, stage.state.forwards}, now_, now_, stage.state.updates});
    }
  }

  SimulationResult result() {
    SimulationResult result;
    result.makespan = now_;
    double busy = 0;
    for (SimulatedRank& rank : ranks_) {
      result.log.ranks.push_back(std::move(rank.log));
      result.busy.push_back(rank.busy);
      result.rank_peak.push_back(rank.peak);
      busy += rank.busy;
    }
    for (const SimulatedStage& stage : stages_) {
      result.peak_in_flight.push_back(stage.peak);
      result.gap_max.push_back(stage.gap_max);
      result.gap_mean.push_back(stage.gaps > 0 ? static_cast<double>(stage.gap_sum) / static_cast<double>(stage.gaps) : 0);
    }
    if (now_ > 0) result.bubble_share = std::max(0.0, 1 - busy / (static_cast<double>(ranks_.size()) * now_));
    return result;
  }

 private:
  SimulatedRank& rank_of(std::size_t s) { return ranks_[static_cast<std::size_t>(placement_.rank_of_stage[s])]; }

  void check_costs() const {
    for (const auto* list : {&costs_.forward, &costs_.backward_input, &costs_.backward_weight, &costs_.update}) {
      if (list->size() != stages_.size() || std::any_of(list->begin(), list->end(), [](double cost) { return !(cost >= 0); })) {
        throw InputError("simulate: costs need one number of 0 or more per stage, that is " + std::to_string(stages_.size()));
      }
    }
    const auto bad = [](double latency) { return !(latency >= 0); };
    if (bad(costs_.latency) || std::any_of(costs_.latencies.begin(), costs_.latencies.end(), bad))
      throw InputError("simulate: latency must be 0 or more");
    if (!costs_.latencies.empty() && costs_.latencies.size() + 1 != stages_.size()) {
      throw InputError("simulate: latencies need one number per link between stages, that is " +
                       std::to_string(stages_.size() - 1));
    }
  }

  bool is_there(const std::vector<double>& arrivals, std::int64_t microbatch) const {
    const auto index = static_cast<std::size_t>(microbatch - first_);
    return index < arrivals.size() && arrivals[index] <= now_;
  }

  // Asks the stage whose turn it is.
  void start(std::size_t r) {
    SimulatedRank& rank = ranks_[r];
    const auto s = static_cast<std::size_t>(rank.stages[rank.turn]);
    rank.turn = (rank.turn + 1) % rank.stages.size();
    StageState& state = stages_[s].state;
    const bool last = s + 1 == stages_.size();
    state.input_ready = s == 0 || is_there(stages_[s].activations, state.forwards);
    state.gradient_ready = state.forwards > state.backwards && (last || is_there(stages_[s].gradients, state.backwards));
    const auto kind = stages_[s].policy->next(state);
    if (!kind) return;
    const double cost = cost_of(*kind, s);
    rank.running = Action{*kind, state.stage, number_of(*kind, state)};
    rank.busy += cost;
    rank.running_until = now_ + cost;
    wake_.emplace(rank.running_until, r);
    rank.log.push_back({*rank.running, now_, rank.running_until, state.updates});
    account(rank, stages_[s], *rank.running);
  }

  // Activations are held from a forward's start to the start of the weight gradient.
  void account(SimulatedRank& rank, SimulatedStage& stage, const Action& action) {
    const int held = action.kind == Kind::forward                                            ? 1
                     : action.kind == Kind::backward || action.kind == Kind::backward_weight ? -1
                                                                                             : 0;
    rank.peak = std::max(rank.peak, rank.live += held);
    stage.peak = std::max(stage.peak, stage.live += held);
    const std::int64_t now = stage.state.updates;
    if (action.kind == Kind::forward) {
      stage.forward_versions.push_back(version_used(options_, action.stage, action.kind, action.microbatch, now, 0));
    } else if (action.kind == Kind::backward || action.kind == Kind::backward_input) {
      const std::int64_t forward = stage.forward_versions[static_cast<std::size_t>(action.microbatch - first_)];
      const std::int64_t gap = version_used(options_, action.stage, action.kind, action.microbatch, now, forward) - forward;
      stage.gap_max = std::max(stage.gap_max, gap);
      stage.gap_sum += gap;
      ++stage.gaps;
    }
  }

  void complete(SimulatedRank& rank) {
    const Kind kind = rank.running->kind;
    const auto s = static_cast<std::size_t>(rank.running->stage);
    StageState& state = stages_[s].state;
    rank.running.reset();
    switch (kind) {
      case Kind::forward:
        ++state.forwards;
        if (s + 1 < stages_.size()) deliver(s, s + 1, stages_[s + 1].activations);
        break;
      case Kind::update:
        ++state.updates;
        break;
      case Kind::backward_weight:
        ++state.weights;
        break;
      default:
        ++state.backwards;
        if (kind == Kind::backward) ++state.weights;
        if (s > 0) deliver(s, s - 1, stages_[s - 1].gradients);
        break;
    }
  }

  void deliver(std::size_t from, std::size_t to, std::vector<double>& arrivals) {
    const auto receiver = static_cast<std::size_t>(placement_.rank_of_stage[to]);
    const bool same = placement_.rank_of_stage[from] == placement_.rank_of_stage[to];
    const double latency = costs_.latencies.empty() ? costs_.latency : costs_.latencies[std::min(from, to)];
    arrivals.push_back(now_ + (same ? 0 : latency));
    if (arrivals.back() > now_) {
      wake_.emplace(arrivals.back(), receiver);
    } else {
      awake_.push_back(receiver);
    }
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

  const ScheduleOptions& options_;
  const Costs& costs_;
  const Placement& placement_;
  std::int64_t first_;
  std::vector<SimulatedStage> stages_;
  std::vector<SimulatedRank> ranks_;
  using Event = std::pair<double, std::size_t>;  // when, and the rank that has to be looked at
  std::priority_queue<Event, std::vector<Event>, std::greater<>> wake_;
  std::vector<std::size_t> awake_;  // ranks of the events of now
  double now_ = 0;
};

}  // namespace

Costs Costs::equal(int stages, double forward, double backward_input, double backward_weight, double update, double latency) {
  const auto n = static_cast<std::size_t>(stages);
  return {std::vector<double>(n, forward), std::vector<double>(n, backward_input), std::vector<double>(n, backward_weight),
          std::vector<double>(n, update), latency};
}

void require_simulable(const ScheduleOptions& options, std::int64_t updates, const std::string& remedy) {
  const std::int64_t window = effective_window(options);
  if (updates <= most_simulated_passes / window / options.stages) return;
  throw InputError("schedule " + options.name + ": " + std::to_string(updates) + " updates of " + std::to_string(window) +
                   " microbatches on " + std::to_string(options.stages) + " stages are more than the " +
                   std::to_string(most_simulated_passes) + " passes that can be simulated; " + remedy);
}

SimulationResult simulate(const ScheduleOptions& options, const Costs& costs, std::int64_t microbatches,
                          std::vector<std::int64_t> segment_ends) {
  return simulate(options, costs, placement_for(options), microbatches, std::move(segment_ends));
}

SimulationResult simulate(const ScheduleOptions& options, const Costs& costs, const Placement& placement,
                          std::int64_t microbatches, std::vector<std::int64_t> segment_ends) {
  validate(options);
  segment_ends.push_back(microbatches);
  const std::int64_t window = effective_window(options);
  for (std::size_t i = 0; i < segment_ends.size(); ++i) {
    const std::int64_t before = i == 0 ? 0 : segment_ends[i - 1];
    if (segment_ends[i] > before && segment_ends[i] % window == 0) continue;
    throw InputError("simulate: segment end " + std::to_string(segment_ends[i]) + " must be above " + std::to_string(before) +
                     " and a multiple of the " + std::to_string(window) + " microbatches per update");
  }
  Policies policies;
  for (int rank = 0; rank < placement.ranks; ++rank) policies.merge(make_rank_policies(options, placement, rank));
  Simulation simulation(options, costs, placement, std::move(policies), 0, 0);
  for (const std::int64_t end : segment_ends) simulation.run_segment(end);
  return simulation.result();
}

SimulationResult simulate(const Plan& plan, const Costs& costs) {
  if (plan.ranks.empty()) throw InputError("simulate: the plan has no ranks");
  const Placement placement = placement_of(plan, static_cast<int>(plan.ranks.size()));
  Policies policies;
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
    policies.merge(make_rank_list_policies(list));
  }
  if (first < 0) throw InputError("simulate: the plan has no forwards");
  for (int stage = 0; stage < placement.stages(); ++stage) {
    if (!policies.contains(stage))
      throw InputError("simulate: stage " + std::to_string(stage) + " computes nothing in the plan");
  }
  const ScheduleOptions current_weights;
  Simulation simulation(current_weights, costs, placement, std::move(policies), first, std::max<std::int64_t>(first_update, 0));
  simulation.run_segment(end);
  return simulation.result();
}

}  // namespace minipipe::schedules
