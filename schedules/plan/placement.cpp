#include "schedules/plan/placement.hpp"

#include <algorithm>
#include <string>

#include "schedules/error.hpp"
#include "schedules/generate/planned_update.hpp"

namespace minipipe::schedules {
namespace {

void require_stages(const ScheduleOptions& options, const Placement& placement) {
  if (placement.stages() == options.stages) return;
  throw InputError("schedule: " + options.name + " needs " + std::to_string(placement.stages()) + " stages on " +
                   std::to_string(placement.ranks) + " ranks, not " + std::to_string(options.stages));
}

}  // namespace

std::vector<int> Placement::stages_of(int rank) const {
  std::vector<int> result;
  for (int stage = 0; stage < stages(); ++stage) {
    if (rank_of(stage) == rank) result.push_back(stage);
  }
  return result;
}

Placement one_stage_per_rank(int ranks) { return blocks(ranks, ranks); }

Placement looped(int ranks, int chunks) {
  Placement result{ranks, {}};
  for (int stage = 0; stage < ranks * chunks; ++stage) result.rank_of_stage.push_back(stage % ranks);
  return result;
}

Placement vee(int ranks) {
  Placement result{ranks, {}};
  for (int stage = 0; stage < 2 * ranks; ++stage) result.rank_of_stage.push_back(std::min(stage, 2 * ranks - 1 - stage));
  return result;
}

Placement blocks(int stages, int ranks) {
  if (ranks < 1 || ranks > stages) {
    throw InputError("schedule: " + std::to_string(stages) + " stages cannot be placed on " + std::to_string(ranks) +
                     " ranks; each rank needs one stage or more");
  }
  Placement result{ranks, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    result.rank_of_stage.insert(result.rank_of_stage.end(),
                                static_cast<std::size_t>(stages / ranks + (rank < stages % ranks ? 1 : 0)), rank);
  }
  return result;
}

Placement placement_for(const ScheduleOptions& options, int ranks) {
  validate(options);
  if (ranks < 1) throw InputError("schedule: the number of ranks is " + std::to_string(ranks) + "; use 1 or more");
  Placement result;
  if (options.name == "interleaved") {
    result = looped(ranks, options.chunks);
  } else if (options.name == "zb-v") {
    result = vee(ranks);
  } else if (options.name == "plan") {
    const auto update = planned_update(options);
    result = update->placement.ranks == ranks ? update->placement : placement_of(update->plan, ranks);
  } else if (is_planned(options.name)) {
    result = one_stage_per_rank(ranks);
  } else {
    result = blocks(options.stages, ranks);
  }
  require_stages(options, result);
  return result;
}

Placement placement_for(const ScheduleOptions& options) {
  validate(options);
  if (options.name == "plan") return planned_update(options)->placement;
  const bool several = options.name == "interleaved" || options.name == "zb-v";
  return placement_for(options, several ? options.stages / options.chunks : options.stages);
}

Placement placement_of(const Plan& plan, int ranks) {
  if (plan.ranks.size() != static_cast<std::size_t>(ranks)) {
    throw InputError("the plan has " + std::to_string(plan.ranks.size()) + " rows, but there are " + std::to_string(ranks) +
                     " ranks; write one row per rank");
  }
  Placement result{ranks, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    const auto row = static_cast<std::size_t>(rank);
    const ActionList& list = plan.ranks[row];
    if (list.empty()) throw InputError(place_text(plan, row) + ": an empty row; each rank needs a stage");
    for (std::size_t cell = 0; cell < list.size(); ++cell) {
      constexpr int kMost = 1 << 20;
      if (list[cell].stage >= kMost) throw InputError(problem_text(plan, row, cell, "there is no such stage"));
      const auto stage = static_cast<std::size_t>(list[cell].stage);
      if (stage >= result.rank_of_stage.size()) result.rank_of_stage.resize(stage + 1, -1);
      int& holder = result.rank_of_stage[stage];
      if (holder >= 0 && holder != rank) {
        throw InputError(problem_text(plan, row, cell, "the stage is on rank " + std::to_string(holder) + " already"));
      }
      holder = rank;
    }
  }
  for (int stage = 0; stage < result.stages(); ++stage) {
    if (result.rank_of(stage) < 0) throw InputError("stage " + std::to_string(stage) + " of the plan is on no rank");
  }
  return result;
}

}  // namespace minipipe::schedules
