#pragma once

#include <functional>
#include <vector>

#include "core/types/types.hpp"

namespace minipipe::core {

// The median of some samples with the quartiles around it, by linear interpolation between the sorted samples.
struct Quartiles {
  double lower = 0, median = 0, upper = 0;
};
Quartiles quartiles(std::vector<double> samples);  // RunError if there are none

// Seconds of one call.
struct Timing {
  Quartiles seconds;
  double best = 0;  // the fastest sample
  int calls = 1;    // in a row per sample
};

// Calls `work` on the instance `repeat` times; where one call is short, a sample is a row of calls of at least
// `shortest_sample` together. The clock is read with nothing enqueued. The first calls, to set up caches and code, do not
// count.
inline constexpr double shortest_sample = 200e-6;  // seconds
Timing measure(const ExecutionSpace& space, int repeat, const std::function<void()>& work);

}  // namespace minipipe::core
