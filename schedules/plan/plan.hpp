#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "schedules/plan/action.hpp"

namespace minipipe::schedules {

// One executed action: what, when (seconds since the run's start) and with which version of the stage's weights
// (the number of updates the stage had made when the action began). `waited_s`: seconds before start_s in which the stage
// looked for something to do and found nothing, because a message was missing or had no room; 0 if it found the action at its
// first look.
struct LoggedAction {
  Action action;
  double start_s = 0;
  double end_s = 0;
  std::int64_t version = 0;
  double waited_s = 0;
};

// For each rank, the actions in the order they are (or were) executed. A plan and an execution log have the same form.
using ActionList = std::vector<Action>;
using ActionLog = std::vector<LoggedAction>;

// Where the actions of a row stand in the text they were read from. Lines and cells are counted from 1, blank ones, comments
// and cells without effect included.
struct RowSource {
  int line = 0;
  std::vector<int> cells = {};  // of each action; empty: not known
};

struct Plan {
  std::vector<ActionList> ranks;
  std::vector<RowSource> sources = {};  // by rank; empty: the plan was not read from a text
};

// The place of a cell in messages for people. In a plan read from a text "row 4, rank 2, cell 7", the row being the line; else
// "rank 2, cell 7". Rows and cells are counted from 1, ranks, as everywhere, from 0. `cell` is an index of the rank's list; the
// place of the whole row if there is no such cell.
std::string place_text(const Plan& plan, std::size_t rank);
std::string place_text(const Plan& plan, std::size_t rank, std::size_t cell);

// The place of a cell, its text and what is wrong with it: "rank 2, cell 7 (2B3): reason".
std::string problem_text(const Plan& plan, std::size_t rank, std::size_t cell, const std::string& reason);

struct Log {
  std::vector<ActionLog> ranks;

  Plan plan() const;
};

}  // namespace minipipe::schedules
