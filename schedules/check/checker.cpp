#include "schedules/check/checker.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "schedules/check/row_check.hpp"
#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

// Ranks by [pipeline][stage], one stage each. False, with a problem, if the ranks do not make whole pipelines.
bool split_pipelines(const std::vector<int>& stage_of_rank, int stages, std::vector<std::vector<int>>& pipelines,
                     std::vector<std::string>& problems) {
  std::vector<std::vector<int>> ranks_of_stage(static_cast<std::size_t>(stages));
  for (std::size_t rank = 0; rank < stage_of_rank.size(); ++rank) {
    const int stage = stage_of_rank[rank];
    if (stage < 0 || stage >= stages) {
      problems.push_back("rank " + std::to_string(rank) + ": there is no stage " + std::to_string(stage) + " among " +
                         std::to_string(stages));
      return false;
    }
    ranks_of_stage[static_cast<std::size_t>(stage)].push_back(static_cast<int>(rank));
  }
  pipelines.resize(ranks_of_stage.front().size());
  for (const std::vector<int>& ranks : ranks_of_stage) {
    if (ranks.empty() || ranks.size() != pipelines.size()) {
      problems.push_back(std::to_string(stage_of_rank.size()) + " ranks do not make whole pipelines of " +
                         std::to_string(stages) + " stages");
      return false;
    }
    for (std::size_t pipeline = 0; pipeline < ranks.size(); ++pipeline) pipelines[pipeline].push_back(ranks[pipeline]);
  }
  return true;
}

// The ranks that work together on the same microbatches.
struct Pipeline {
  std::vector<int> ranks;
  std::vector<int> row_of_stage;  // indices of `ranks`

  std::vector<int> stages_of(int rank) const {
    std::vector<int> result;
    for (std::size_t stage = 0; stage < row_of_stage.size(); ++stage) {
      if (ranks[static_cast<std::size_t>(row_of_stage[stage])] == rank) result.push_back(static_cast<int>(stage));
    }
    return result;
  }
};

std::vector<int> first_numbers(std::size_t count) {
  std::vector<int> result(count);
  std::iota(result.begin(), result.end(), 0);
  return result;
}

bool find_pipelines(const Plan& plan, const ScheduleOptions& options, const CheckRange& range, std::vector<Pipeline>& pipelines,
                    std::vector<std::string>& problems) {
  Placement placement = range.placement;
  const bool one_each = plan.ranks.size() == static_cast<std::size_t>(options.stages) || !is_planned(options.name);
  if (range.stage_of_rank.empty() && placement.ranks == 0 && !one_each) placement = placement_for(options);
  if (range.stage_of_rank.empty() && placement.ranks > 0) {
    if (plan.ranks.size() == static_cast<std::size_t>(placement.ranks) && placement.stages() == options.stages) {
      pipelines.push_back({first_numbers(plan.ranks.size()), placement.rank_of_stage});
      return true;
    }
    problems.push_back(std::to_string(plan.ranks.size()) + " rows for " + std::to_string(placement.ranks) + " ranks with " +
                       std::to_string(placement.stages()) + " stages, and the schedule has " + std::to_string(options.stages));
    return false;
  }
  const std::vector<int> stage_of_rank = range.stage_of_rank.empty() ? first_numbers(plan.ranks.size()) : range.stage_of_rank;
  if (stage_of_rank.size() != plan.ranks.size()) {
    problems.push_back(std::to_string(plan.ranks.size()) + " rows for " + std::to_string(stage_of_rank.size()) + " ranks");
    return false;
  }
  std::vector<std::vector<int>> ranks_of_pipeline;
  if (!split_pipelines(stage_of_rank, options.stages, ranks_of_pipeline, problems)) return false;
  for (std::vector<int>& ranks : ranks_of_pipeline)
    pipelines.push_back({std::move(ranks), first_numbers(static_cast<std::size_t>(options.stages))});
  return true;
}

}  // namespace

CheckReport check(const Plan& plan, const ScheduleOptions& options, const CheckRange& range) {
  validate(options);
  const std::int64_t window = effective_window(options);
  if (range.microbatches < 0 || range.microbatches % window != 0) {
    throw InputError("check: " + std::to_string(range.microbatches) + " microbatches are not a multiple of the " +
                     std::to_string(window) + " per update");
  }
  CheckReport report;
  for (const ActionList& list : plan.ranks) report.ranks.push_back(measure(list, options));
  std::vector<Pipeline> pipelines;
  if (!find_pipelines(plan, options, range, pipelines, report.problems)) return report;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    std::vector<RowProblem> problems;
    for (const Pipeline& pipeline : pipelines) {
      const std::vector<int> stages = pipeline.stages_of(static_cast<int>(rank));
      for (const int stage : stages) {
        const auto s = static_cast<std::size_t>(stage);
        RowRules rules{.rank = static_cast<int>(rank), .stage = stage, .stages_on_rank = stages};
        rules.first_microbatch = range.first_microbatch;
        rules.microbatches = range.microbatches;
        rules.first_update = range.first_update;
        rules.window = window;
        rules.activation_slots =
            range.activation_slots.empty() ? activation_slots(options, stage) : range.activation_slots.at(s);
        rules.gap_bound = version_gap_bound(options, stage);
        rules.delay_bound = gradient_delay_bound(options, stage);
        rules.schedule = &options;
        check_row(plan, rules, problems);
      }
    }
    // The first cell of a row first, whatever its stage.
    std::stable_sort(problems.begin(), problems.end(),
                     [](const RowProblem& a, const RowProblem& b) { return a.cell < b.cell; });
    for (RowProblem& problem : problems) report.problems.push_back(std::move(problem.text));
  }
  for (const Pipeline& pipeline : pipelines) {
    check_execution(plan, pipeline.ranks, pipeline.row_of_stage, report.problems);
  }
  return report;
}

CheckReport check(const Log& log, const ScheduleOptions& options, const CheckRange& range) {
  const Plan plan = log.plan();
  CheckReport report = check(plan, options, range);
  for (std::size_t rank = 0; rank < log.ranks.size(); ++rank) {
    std::map<int, std::int64_t> updates;  // by stage
    double last_end = 0;
    for (std::size_t cell = 0; cell < log.ranks[rank].size(); ++cell) {
      const LoggedAction& entry = log.ranks[rank][cell];
      const auto problem = [&](const std::string& reason) {
        report.problems.push_back(problem_text(plan, rank, cell, reason));
      };
      std::int64_t& done = updates[entry.action.stage];
      if (const std::int64_t version = range.first_update + done; entry.version != version) {
        problem("logged with weight version " + std::to_string(entry.version) + ", but " + std::to_string(version) +
                " updates came before");
      }
      if (entry.start_s > entry.end_s) problem("ends before it starts");
      if (cell > 0 && entry.start_s < last_end) problem("starts before the action before it has ended");
      last_end = entry.end_s;
      if (entry.action.kind == Kind::update) ++done;
    }
  }
  return report;
}

}  // namespace minipipe::schedules
