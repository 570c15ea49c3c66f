#pragma once

#include <vector>

#include "schedules/plan/placement.hpp"

namespace minipipe::core {

// Which stages this rank runs. `placement` is the schedule's: with as many ranks as it has, each holds its stages; a single
// process holds all of them and follows the lists of all the placement's ranks.
struct Place {
  int rank = 0;
  int ranks = 1;
  schedules::Placement placement;

  int stages() const { return placement.stages(); }
  bool one_process() const { return ranks == 1; }
  int rank_of(int stage) const { return one_process() ? 0 : placement.rank_of(stage); }
  bool has(int stage) const { return rank_of(stage) == rank; }
  bool has_last_stage() const { return has(stages() - 1); }

  // In ascending order.
  std::vector<int> local_stages() const {
    std::vector<int> result;
    for (int stage = 0; stage < stages(); ++stage) {
      if (has(stage)) result.push_back(stage);
    }
    return result;
  }
};

}  // namespace minipipe::core
