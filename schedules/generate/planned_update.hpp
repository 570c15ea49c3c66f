#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// The rows of one update of a planned schedule, numbers from 0, and what is asked of them for every stage.
struct PlannedUpdate {
  Plan plan;
  Placement placement;              // that the rows have
  std::vector<std::int64_t> peaks;  // by stage: most microbatches between forward and weight gradient
  bool splits_backward = false;     // input and weight gradients apart
};

// Made once for all equal options and kept. A plan file is read, completed (plan/complete.hpp) and validated again when it has
// changed. InputError for options that are not those of a planned schedule, and for a plan file that cannot be run.
std::shared_ptr<const PlannedUpdate> planned_update(const ScheduleOptions& options);

}  // namespace minipipe::schedules
