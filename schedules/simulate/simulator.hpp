#pragma once

#include <cstdint>
#include <vector>

#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::schedules {

// Seconds of each action, by stage, and of a message between neighbours.
struct Costs {
  std::vector<double> forward;
  std::vector<double> backward_input;
  std::vector<double> backward_weight;  // a whole backward takes both
  std::vector<double> update;
  // From the end of an action to the arrival of its message on another rank; messages do not delay each other.
  double latency = 0;
  std::vector<double> latencies = {};  // the same by link, [s] between stages s and s + 1; empty: `latency` on all

  static Costs equal(int stages, double forward, double backward_input, double backward_weight, double update = 0,
                     double latency = 0);
};

struct SimulationResult {
  double makespan = 0;
  Log log;                                   // by rank: predicted times; a drain entry per stage and segment, as in a real log
  std::vector<double> busy;                  // by rank: seconds of compute and updates
  double bubble_share = 0;                   // 1 - sum(busy) / (ranks * makespan)
  std::vector<std::int64_t> peak_in_flight;  // by stage: from the forward to the weight gradient
  std::vector<std::int64_t> rank_peak;       // by rank: the same, summed over its stages
  std::vector<std::int64_t> gap_max;         // by stage: updates between the versions used by forward and backward
  std::vector<double> gap_mean;              // by stage, over all microbatches (fill and drain included)
};

// Forwards, one for each microbatch on each stage. More take gigabytes and minutes, for nothing that fewer would not show.
inline constexpr std::int64_t most_simulated_passes = 20000000;

// Throws InputError if so many updates have more; `remedy` ends its text.
void require_simulable(const ScheduleOptions& options, std::int64_t updates, const std::string& remedy);

// Discrete-event simulation of `microbatches` under the policy objects that also drive the executor. The pipe drains at each of
// `segment_ends` (ascending, below `microbatches`) and at the end; the next segment starts when all stages have drained.
// Throws InputError for costs that do not fit, RunError if the schedule comes to a stop (deadlock).
SimulationResult simulate(const ScheduleOptions& options, const Costs& costs, std::int64_t microbatches,
                          std::vector<std::int64_t> segment_ends = {});

// The same with a given placement; without one it is placement_for(options). A rank with several stages does one action at a
// time, and asks its stages in turn.
SimulationResult simulate(const ScheduleOptions& options, const Costs& costs, const Placement& placement,
                          std::int64_t microbatches, std::vector<std::int64_t> segment_ends = {});

// The same for given lists, starting at the first microbatch and the first update in them. Costs are by stage.
SimulationResult simulate(const Plan& plan, const Costs& costs);

}  // namespace minipipe::schedules
