#include "schedules/generate/generate.hpp"

#include "schedules/error.hpp"
#include "schedules/generate/planned_update.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::schedules {
namespace {

Plan plan_of_policies(const ScheduleOptions& options, const Placement& placement, std::int64_t updates) {
  const auto result = simulate(options, Costs::equal(options.stages, 1, 1, 1), placement, updates * effective_window(options));
  Plan plan = result.log.plan();
  for (ActionList& list : plan.ranks) {
    std::erase_if(list, [](const Action& action) { return action.kind == Kind::drain; });
  }
  return plan;
}

Action moved(Action action, std::int64_t microbatches, std::int64_t updates) {
  action.microbatch += action.kind == Kind::update ? updates : microbatches;
  return action;
}

}  // namespace

Plan generate_plan(const ScheduleOptions& options, const Placement& placement, std::int64_t first_update,
                   std::int64_t updates) {
  validate(options);
  if (first_update < 0 || updates < 1) throw InputError("plan: needs one update or more, from update 0 on or later");
  const std::int64_t window = effective_window(options);
  if (!is_planned(options.name)) {
    // Asynchronous weight rules and synchronous first updates depend on the update's number: made from 0 on only.
    if (first_update > 0 && options.synchronous_updates > 0 && is_asynchronous(options.name)) {
      throw InputError("plan: a schedule with synchronous updates can be listed from update 0 on only");
    }
    Plan plan = plan_of_policies(options, placement, updates);
    for (ActionList& list : plan.ranks) {
      for (Action& action : list) action = moved(action, first_update * window, first_update);
    }
    return plan;
  }
  const auto once = planned_update(options);
  if (placement != placement_for(options, placement.ranks)) {
    throw InputError("plan: " + options.name + " places stages by its own rule; ask placement_for");
  }
  Plan plan;
  for (const ActionList& row : once->plan.ranks) {
    ActionList& list = plan.ranks.emplace_back();
    for (std::int64_t update = first_update; update < first_update + updates; ++update) {
      for (const Action& action : row) list.push_back(moved(action, update * window, update));
    }
  }
  return plan;
}

}  // namespace minipipe::schedules
