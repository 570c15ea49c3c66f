#pragma once

#include <cstdint>
#include <vector>

#include "schedules/plan/action.hpp"

namespace minipipe::schedules {

// One executed action: what, when (seconds since the run's start) and with which version of the stage's weights
// (the number of updates the stage had made when the action began).
struct LoggedAction {
  Action action;
  double start_s = 0;
  double end_s = 0;
  std::int64_t version = 0;
};

// For each rank, the actions in the order they are (or were) executed. A plan and an execution log have the same form.
using ActionList = std::vector<Action>;
using ActionLog = std::vector<LoggedAction>;

struct Plan {
  std::vector<ActionList> ranks;
};

struct Log {
  std::vector<ActionLog> ranks;

  Plan plan() const;
};

}  // namespace minipipe::schedules
