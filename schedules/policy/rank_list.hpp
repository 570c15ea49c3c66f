#pragma once

#include <map>
#include <memory>

#include "schedules/plan/placement.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::schedules {

// Policies of the stages of one rank that follow the rank's list together: the stage of the head of the list is given its
// action, the others wait. Sends, receives and drains in the list are skipped. Each stage has its own executor; all of them are
// advanced in turn by one thread, which the shared cursor needs.
// A stage has finished when the list is exhausted, or when all it has begun is done and the list goes on with a forward at or
// beyond the segment's end. `next` throws RunError if the list asks a stage for an action out of ascending microbatch order.
std::map<int, std::unique_ptr<Policy>> make_rank_list_policies(ActionList rank_list);

// The policies of all stages of a rank, whatever the schedule. For planned schedules they share the list of one update, which
// is repeated without end; its numbers count from where the stages stand at the first question.
std::map<int, std::unique_ptr<Policy>> make_rank_policies(const ScheduleOptions& options, const Placement& placement, int rank);

}  // namespace minipipe::schedules
