#pragma once

#include <vector>

#include "schedules/plan/placement.hpp"

namespace minipipe::core {

// Where this rank is in the grid of data-parallel replicas x pipeline ranks: ranks of a replica are neighbours, replica r has
// ranks r P .. (r + 1) P - 1. `placement` says which pipeline rank runs which stage: with as many of them as it has, each holds
// its stages; a single one holds all stages and follows the lists of all the placement's ranks.
struct Place {
  int rank = 0;
  int ranks = 1;
  int replicas = 1;
  schedules::Placement placement;

  int pipeline_ranks() const { return ranks / replicas; }
  int replica() const { return rank / pipeline_ranks(); }
  int pipeline_rank() const { return rank % pipeline_ranks(); }
  int stages() const { return placement.stages(); }
  bool one_process() const { return pipeline_ranks() == 1; }  // all stages of a replica

  // The rank that runs a stage of this rank's replica, or of another.
  int rank_of(int stage) const { return rank_of(stage, replica()); }
  int rank_of(int stage, int in_replica) const {
    return in_replica * pipeline_ranks() + (one_process() ? 0 : placement.rank_of(stage));
  }
  bool has(int stage) const { return rank_of(stage) == rank; }
  bool has_last_stage() const { return has(stages() - 1); }
  // What is told to the user once comes from here: the last stage of the first replica.
  bool tells_progress() const { return rank_of(stages() - 1, 0) == rank; }

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
