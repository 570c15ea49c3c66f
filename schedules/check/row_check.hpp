#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/plan/plan.hpp"

namespace minipipe::schedules {

// What one rank's list has to obey.
struct RowRules {
  int rank = 0;
  int stage = 0;
  std::int64_t first_microbatch = 0;
  std::int64_t microbatches = 0;
  std::int64_t first_update = 0;
  std::int64_t window = 1;
  std::int64_t activation_slots = 1;
  std::int64_t gap_bound = 0;
};

// "rank 2, cell 7 (2B3): reason"
std::string problem_text(int rank, std::size_t cell, const Action& action, const std::string& reason);

// Appends the problems that one list shows on its own.
void check_row(const ActionList& actions, const RowRules& rules, std::vector<std::string>& problems);

// Appends a problem if the lists of one pipeline (index: stage) cannot be executed, or if sends and receives disagree.
void check_execution(const std::vector<const ActionList*>& stages, const std::vector<int>& ranks,
                     std::vector<std::string>& problems);

}  // namespace minipipe::schedules
