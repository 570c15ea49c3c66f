#pragma once

#include <cstdint>
#include <vector>

#include "schedules/plan/plan.hpp"

namespace minipipe::schedules {

// What one rank's action list says about memory and weight versions.
struct ListMeasures {
  std::int64_t peak_in_flight = 0;      // microbatches between their forward and their (weight) backward, at most
  std::vector<std::int64_t> gaps;       // by microbatch in list order: updates between its forward and its input gradient
  std::vector<std::int64_t> histogram;  // [g] = microbatches with gap g
  std::int64_t gap_max = 0;
  double gap_mean = 0;
};

// Only counts: a broken list gives numbers, not an error. Microbatches without a backward have no gap.
ListMeasures measure(const ActionList& actions);

}  // namespace minipipe::schedules
