#pragma once

#include <cstdint>

#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// The order of a run, one row per rank, from update `first_update` on, computes and updates only. Planned schedules: the list
// of one update, once per update with the numbers moved on; each row of an update ends with the U of the rank's stages. The
// others: what their policies do when all passes take equal time (a backward two), filling once and draining at the end.
// InputError if the schedule cannot have this placement.
Plan generate_plan(const ScheduleOptions& options, const Placement& placement, std::int64_t first_update, std::int64_t updates);

}  // namespace minipipe::schedules
