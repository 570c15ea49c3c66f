#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "schedules/plan/plan.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::core {

// Reads an action log to replay: a run's trace.h5, or a CSV plan. The result has one list per stage, whichever ranks recorded
// them. InputError if the file cannot be read or names other stages than 0 .. stages-1.
schedules::Plan read_replay(const std::string& file, int stages);

// The part of a stage's list that belongs to the updates [first, end). InputError (naming file and stage) if the list does not
// hold all of it: the log is of a shorter run, or of another number of microbatches per update.
std::unique_ptr<schedules::Policy> replay_policy(const schedules::Plan& plan, int stage, std::int64_t first_update,
                                                 std::int64_t end_update, std::int64_t window);

}  // namespace minipipe::core
