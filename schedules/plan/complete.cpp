#include "schedules/plan/complete.hpp"

#include <algorithm>
#include <map>

#include "schedules/check/checker.hpp"
#include "schedules/error.hpp"
#include "schedules/plan/communication.hpp"

namespace minipipe::schedules {

Plan complete_plan(Plan plan, const ScheduleOptions& options) {
  for (const ActionList& list : plan.ranks) {
    if (std::any_of(list.begin(), list.end(), [](const Action& action) { return action.kind == Kind::update; })) return plan;
  }
  for (ActionList& list : plan.ranks) {
    std::map<int, std::int64_t> backwards;  // by stage
    ActionList completed;
    for (const Action& action : list) {
      completed.push_back(action);
      if (action.kind != Kind::backward && action.kind != Kind::backward_weight) continue;
      const std::int64_t done = ++backwards[action.stage];
      if (done % options.window == 0) completed.push_back({Kind::update, action.stage, done / options.window - 1});
    }
    list = std::move(completed);
  }
  return plan;
}

void validate_plan(const Plan& plan, const ScheduleOptions& options, const std::string& name) {
  const auto fail = [&](const std::string& problem) {
    throw InputError(name + ": " + problem + " (row r is rank r; rows and cells are counted from 0, without blank cells)");
  };
  Placement placement;
  try {
    placement = placement_of(plan, static_cast<int>(plan.ranks.size()));
  } catch (const InputError& error) {
    fail(error.what());
  }
  if (placement.stages() != options.stages) {
    fail("has stages 0 to " + std::to_string(placement.stages() - 1) + ", but the run has " + std::to_string(options.stages));
  }
  ScheduleOptions rules;  // one update of a flush schedule
  rules.name = "gpipe";
  rules.stages = options.stages;
  rules.window = options.window;
  CheckRange range{.microbatches = options.window};
  range.placement = placement;
  const CheckReport report = check(plan, rules, range);
  if (!report.ok()) fail(report.problems.front());
  const auto problems = find_deadlocks(plan, placement);
  if (!problems.empty()) fail(problems.front());
}

}  // namespace minipipe::schedules
