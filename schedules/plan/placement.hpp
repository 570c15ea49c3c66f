#pragma once

#include <vector>

#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// Which rank holds which stage.
struct Placement {
  int ranks = 0;
  std::vector<int> rank_of_stage = {};

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  int rank_of(int stage) const { return rank_of_stage[static_cast<std::size_t>(stage)]; }
  // In ascending order.
  std::vector<int> stages_of(int rank) const;

  friend bool operator==(const Placement&, const Placement&) = default;
};

Placement one_stage_per_rank(int ranks);
// Stage s on rank s % ranks (interleaved 1F1B, arXiv 2104.04473).
Placement looped(int ranks, int chunks);
// Rank r holds stages r and 2 ranks - 1 - r (ZB-V, arXiv 2401.10241).
Placement vee(int ranks);
// Neighbouring stages together; the first ranks hold one more where `stages` is not a multiple of `ranks`.
Placement blocks(int stages, int ranks);

// The placement a schedule wants on `ranks` ranks: looped for interleaved, vee for zb-v, the file's for plan, else blocks.
// InputError if options.stages do not fit on them.
Placement placement_for(const ScheduleOptions& options, int ranks);
// The same on the schedule's own number of ranks: one stage each, or as many as chunks or the plan file say.
Placement placement_for(const ScheduleOptions& options);

// Reads the placement off a plan. InputError naming rank and cell if a stage is on two ranks or on none, if a row is empty, or
// if there are not `ranks` rows.
Placement placement_of(const Plan& plan, int ranks);

}  // namespace minipipe::schedules
