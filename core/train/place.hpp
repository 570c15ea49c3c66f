#pragma once

#include <vector>

namespace minipipe::core {

// Which stages this rank runs: one per rank, or all of them in a single process.
struct Place {
  int rank = 0;
  int ranks = 1;
  int stages = 1;

  bool one_process() const { return ranks == 1; }
  int rank_of(int stage) const { return one_process() ? 0 : stage; }
  int first_stage() const { return one_process() ? 0 : rank; }
  int local_stages() const { return one_process() ? stages : 1; }
  bool has_last_stage() const { return first_stage() + local_stages() == stages; }
};

}  // namespace minipipe::core
