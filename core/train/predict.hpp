#pragma once

#include "schedules/plan/plan.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::core {

// What the simulator predicts for the segment a measured log (one list per rank) covers: the same microbatches under the same
// policy, every action of a stage taking the mean time measured for its kind there. Times start where the log starts.
schedules::Log predict(const schedules::Log& measured, const schedules::ScheduleOptions& options, double latency_s);

}  // namespace minipipe::core
