#pragma once

#include <vector>

#include "schedules/plan/plan.hpp"

namespace minipipe::schedules {

// Where a rank was idle between the first start and the last end of any action in a log, in seconds.
struct BubbleSplit {
  double warm_up = 0;    // before the first backward anywhere starts
  double residual = 0;   // between
  double cool_down = 0;  // after the last forward anywhere ends
};

// By rank. An idle interval across a border is split there. If the last forward ends before the first backward starts (one
// microbatch in flight in all), what lies between is warm-up.
std::vector<BubbleSplit> bubble_split(const Log& log);

}  // namespace minipipe::schedules
