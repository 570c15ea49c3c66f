#pragma once

#include "schedules/plan/plan.hpp"
#include "schedules/policy/policy.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::core {

// What the simulator predicts for the segment a measured log (one list per rank) covers: the same microbatches under the same
// policy, every action of a stage taking the mean time measured for its kind there, messages the latencies of `links` (the
// rest of which is not looked at). Times start where the log starts.
schedules::Log predict(const schedules::Log& measured, const schedules::ScheduleOptions& options,
                       const schedules::Costs& links = {});

}  // namespace minipipe::core
