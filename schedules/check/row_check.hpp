#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// What one stage's cells in its rank's list have to obey.
struct RowRules {
  int rank = 0;
  int stage = 0;
  std::vector<int> stages_on_rank = {};  // this one and others, whose cells are skipped
  std::int64_t first_microbatch = 0;
  std::int64_t microbatches = 0;
  std::int64_t first_update = 0;
  std::int64_t window = 1;
  std::int64_t activation_slots = 1;
  std::int64_t gap_bound = 0;
  std::int64_t delay_bound = 0;
  const ScheduleOptions* schedule = nullptr;  // for the versions that passes use; not null
};

struct RowProblem {
  std::size_t cell = 0;  // an index; one behind the last: something is missing at the end
  std::string text;
};

// Appends the problems that the cells of one stage in row `rules.rank` of the plan show on their own.
void check_row(const Plan& plan, const RowRules& rules, std::vector<RowProblem>& problems);

// Appends a problem if the lists of one pipeline (the ranks `ranks` of the plan) cannot be executed, or if sends and receives
// disagree. `row_of_stage`: an index of `ranks` for each stage.
void check_execution(const Plan& plan, const std::vector<int>& ranks, const std::vector<int>& row_of_stage,
                     std::vector<std::string>& problems);

}  // namespace minipipe::schedules
