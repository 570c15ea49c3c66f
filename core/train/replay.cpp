#include "core/train/replay.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/deck/rule_list.hpp"
#include "core/io/trace.hpp"
#include "schedules/error.hpp"
#include "schedules/plan/csv.hpp"

namespace minipipe::core {

schedules::Plan read_replay(const std::string& file, int stages) {
  schedules::Plan recorded;
  if (std::filesystem::path(file).extension() == ".csv") {
    std::ifstream stream(file);
    if (!stream) throw InputError("schedule.replay = \"" + file + "\": cannot be read; give a run's trace.h5 or a CSV plan");
    recorded = schedules::read_csv(stream, file);
  } else {
    try {
      recorded = TraceReader(file).actions().plan();
    } catch (const InputError& error) {
      throw InputError("schedule.replay = \"" + file + "\": " + error.what());
    }
  }
  schedules::Plan by_stage;
  by_stage.ranks.resize(stages);
  for (const auto& rank : recorded.ranks) {
    for (const auto& action : rank) {
      if (action.stage < 0 || action.stage >= stages) {
        throw InputError("schedule.replay = \"" + file + "\": action " + schedules::to_text(action) +
                         " is of a stage that this run of " + plural(stages, "stage") +
                         " does not have; set parallel.stages or the number of ranks to the log's");
      }
      by_stage.ranks[action.stage].push_back(action);
    }
  }
  return by_stage;
}

std::unique_ptr<schedules::Policy> replay_policy(const schedules::Plan& plan, int stage, std::int64_t first_update,
                                                 std::int64_t end_update, std::int64_t window) {
  schedules::ActionList part;
  for (const auto& action : plan.ranks[stage]) {
    const bool update = action.kind == schedules::Kind::update;
    if (!update && !schedules::is_compute(action.kind)) continue;
    const std::int64_t scale = update ? 1 : window;
    if (action.microbatch >= first_update * scale && action.microbatch < end_update * scale) part.push_back(action);
  }
  const auto count = [&](schedules::Kind kind) {
    return std::count_if(part.begin(), part.end(), [&](const auto& a) { return a.kind == kind; });
  };
  if (count(schedules::Kind::update) != end_update - first_update ||
      count(schedules::Kind::forward) != (end_update - first_update) * window) {
    throw InputError("schedule.replay: stage " + std::to_string(stage) + " has " +
                     std::to_string(count(schedules::Kind::forward)) + " forwards and " +
                     std::to_string(count(schedules::Kind::update)) + " updates for updates " + std::to_string(first_update) +
                     " to " + std::to_string(end_update) + " of " + std::to_string(window) +
                     " microbatches each; set run.steps and train.microbatches as in the recorded run");
  }
  return schedules::make_list_policy(std::move(part));
}

}  // namespace minipipe::core
