#include "schedules/generate/generate.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <tuple>

#include "schedules/check/gaps.hpp"
#include "schedules/error.hpp"
#include "schedules/generate/generators.hpp"
#include "schedules/plan/complete.hpp"
#include "schedules/plan/csv.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::schedules {
namespace {

Plan read_plan(const ScheduleOptions& options) {
  std::ifstream file(options.plan_file);
  if (!file) throw InputError(options.plan_file + ": cannot be opened; name a CSV plan in schedule.plan");
  Plan plan = complete_plan(read_csv(file, options.plan_file), options);
  validate_plan(plan, options, options.plan_file);
  return plan;
}

Plan make_plan(const ScheduleOptions& options) {
  const std::int64_t m = options.window;
  if (options.name == "interleaved") return interleaved_update(options.stages / options.chunks, options.chunks, m);
  if (options.name == "zb-h1") return zb_h1_update(options.stages, m);
  if (options.name == "zb-h2") return zb_h2_update(options.stages, m);
  if (options.name == "zb-v") return zb_v_update(options.stages / 2, m);
  if (options.name == "zb-auto") {
    // No stage can hold more than all microbatches; a larger number may not fit an integer.
    const double most = static_cast<double>(options.stages) * static_cast<double>(std::max<std::int64_t>(m, options.stages));
    const auto limit =
        options.memory_limit == 0 ? options.stages : static_cast<std::int64_t>(std::min(options.memory_limit, most));
    return zb_auto_update(options.stages, m, limit, options.costs);
  }
  if (options.name == "plan") return read_plan(options);
  throw InputError("schedule: " + options.name + " decides at run time and has no list of one update");
}

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

std::shared_ptr<const Plan> plan_of_one_update(const ScheduleOptions& options) {
  validate(options);
  using Key = std::tuple<std::string, int, std::int64_t, int, double, double, double, double, std::string>;
  const PassCosts& costs = options.costs;
  const Key key{options.name,  options.stages,       options.window,        options.chunks,   options.memory_limit,
                costs.forward, costs.backward_input, costs.backward_weight, options.plan_file};
  static std::mutex mutex;
  static std::map<Key, std::shared_ptr<const Plan>> made;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = made.find(key); found != made.end()) return found->second;
  }
  auto plan = std::make_shared<const Plan>(make_plan(options));
  const std::lock_guard lock(mutex);
  if (options.name != "plan") made.emplace(key, plan);  // a file may change
  return plan;
}

std::int64_t planned_peak(const ScheduleOptions& options, int stage) {
  const auto plan = plan_of_one_update(options);
  for (const ActionList& list : plan->ranks) {
    const ActionList own = only_stage(list, stage);
    if (!own.empty()) return measure(own).peak_in_flight;
  }
  return 0;
}

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
  const auto once = plan_of_one_update(options);
  if (placement != placement_for(options, placement.ranks)) {
    throw InputError("plan: " + options.name + " places stages by its own rule; ask placement_for");
  }
  Plan plan;
  for (const ActionList& row : once->ranks) {
    ActionList& list = plan.ranks.emplace_back();
    for (std::int64_t update = first_update; update < first_update + updates; ++update) {
      for (const Action& action : row) list.push_back(moved(action, update * window, update));
    }
  }
  return plan;
}

}  // namespace minipipe::schedules
