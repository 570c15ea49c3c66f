#pragma once

#include <cstdint>
#include <vector>

#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// What one list says about memory and weight versions.
struct ListMeasures {
  std::int64_t peak_in_flight = 0;  // microbatches between their forward and their (weight) backward, at most; of all stages
  std::vector<std::int64_t> gaps;   // by microbatch in list order: updates between its forward's and its backward's version
  std::vector<std::int64_t> histogram;  // [g] = microbatches with gap g
  std::int64_t gap_max = 0;
  double gap_mean = 0;
};

// Only counts: a broken list gives numbers, not an error. Microbatches without a backward have no gap. Without options every
// pass uses the newest weights; with them, those of the schedule's weight rule. Microbatches and versions are told apart by
// stage.
ListMeasures measure(const ActionList& actions);
ListMeasures measure(const ActionList& actions, const ScheduleOptions& options);

// Most activation memory of a list when a microbatch needs `activations` from its forward to its input gradient and `kept` of
// them until its weight gradient (M_B and M_W of arXiv 2401.10241).
double peak_memory(const ActionList& actions, double activations, double kept);

// The cells of one stage.
ActionList only_stage(const ActionList& actions, int stage);

}  // namespace minipipe::schedules
