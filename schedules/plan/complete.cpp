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
  plan.sources.resize(plan.ranks.size());
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    ActionList& list = plan.ranks[rank];
    std::vector<int>& cells = plan.sources[rank].cells;
    const bool known = cells.size() == list.size();
    std::map<int, std::int64_t> backwards;  // by stage
    ActionList completed;
    std::vector<int> completed_cells;
    const auto add = [&](const Action& action, std::size_t cell) {
      completed.push_back(action);
      if (known) completed_cells.push_back(cells[cell]);
    };
    for (std::size_t cell = 0; cell < list.size(); ++cell) {
      const Action& action = list[cell];
      add(action, cell);
      if (action.kind != Kind::backward && action.kind != Kind::backward_weight) continue;
      const std::int64_t done = ++backwards[action.stage];
      if (done % options.window == 0) add({Kind::update, action.stage, done / options.window - 1}, cell);
    }
    list = std::move(completed);
    cells = std::move(completed_cells);
  }
  return plan;
}

void validate_plan(const Plan& plan, const ScheduleOptions& options, const std::string& name) {
  const auto fail = [&](const std::string& problem) {
    throw InputError(name + ": " + problem + " (rows are lines of the file, rows and cells count from 1, ranks from 0)");
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
