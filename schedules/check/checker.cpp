#include "schedules/check/checker.hpp"

#include <numeric>

#include "schedules/check/row_check.hpp"
#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

std::vector<int> stages_of(const Plan& plan, const CheckRange& range) {
  std::vector<int> stages = range.stage_of_rank;
  if (stages.empty()) {
    stages.resize(plan.ranks.size());
    std::iota(stages.begin(), stages.end(), 0);
  }
  return stages;
}

// Ranks by [pipeline][stage]. False, with a problem, if the ranks do not make whole pipelines.
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

}  // namespace

CheckReport check(const Plan& plan, const ScheduleOptions& options, const CheckRange& range) {
  validate(options);
  if (range.microbatches < 0 || range.microbatches % options.window != 0) {
    throw InputError("check: " + std::to_string(range.microbatches) + " microbatches are not a multiple of the " +
                     std::to_string(options.window) + " per update");
  }
  CheckReport report;
  for (const ActionList& list : plan.ranks) report.ranks.push_back(measure(list));
  const std::vector<int> stage_of_rank = stages_of(plan, range);
  if (stage_of_rank.size() != plan.ranks.size()) {
    report.problems.push_back(std::to_string(plan.ranks.size()) + " rows for " + std::to_string(stage_of_rank.size()) +
                              " ranks");
    return report;
  }
  std::vector<std::vector<int>> pipelines;
  if (!split_pipelines(stage_of_rank, options.stages, pipelines, report.problems)) return report;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const int stage = stage_of_rank[rank];
    const RowRules rules{
        static_cast<int>(rank), stage,          range.first_microbatch,           range.microbatches,
        range.first_update,     options.window, activation_slots(options, stage), version_gap_bound(options, stage)};
    check_row(plan.ranks[rank], rules, report.problems);
  }
  for (const std::vector<int>& ranks : pipelines) {
    std::vector<const ActionList*> lists;
    for (const int rank : ranks) lists.push_back(&plan.ranks[static_cast<std::size_t>(rank)]);
    check_execution(lists, ranks, report.problems);
  }
  return report;
}

CheckReport check(const Log& log, const ScheduleOptions& options, const CheckRange& range) {
  CheckReport report = check(log.plan(), options, range);
  for (std::size_t rank = 0; rank < log.ranks.size(); ++rank) {
    std::int64_t version = range.first_update;
    double last_end = 0;
    for (std::size_t cell = 0; cell < log.ranks[rank].size(); ++cell) {
      const LoggedAction& entry = log.ranks[rank][cell];
      const auto problem = [&](const std::string& reason) {
        report.problems.push_back(problem_text(static_cast<int>(rank), cell, entry.action, reason));
      };
      if (entry.version != version) {
        problem("logged with weight version " + std::to_string(entry.version) + ", but " + std::to_string(version) +
                " updates came before");
      }
      if (entry.start_s > entry.end_s) problem("ends before it starts");
      if (cell > 0 && entry.start_s < last_end) problem("starts before the action before it has ended");
      last_end = entry.end_s;
      if (entry.action.kind == Kind::update) ++version;
    }
  }
  return report;
}

}  // namespace minipipe::schedules
