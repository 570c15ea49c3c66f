#pragma once

#include <cstdint>

#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// Rows of one update with `m` microbatches, numbers from 0, each ending with the U of the rank's stages. Any m >= 1.

// Interleaved 1F1B (arXiv 2104.04473): looped placement, `chunks` stages per rank. Rank r begins with (ranks-r-1)*2 +
// (chunks-1)*ranks forwards (chunks = 1: ranks-r-1), taking `ranks` microbatches through each of its stages in turn. Where m is
// not a multiple of `ranks`, the order is that of the next multiple, with the microbatches that do not exist left out.
Plan interleaved_update(int ranks, int chunks, std::int64_t m);

// Hand-made zero-bubble schedules (arXiv 2401.10241), one stage per rank. Stage i (from 1) begins with `warm` forwards and lets
// its weight gradients lag `lag` input gradients behind. H1: N-i+1 and i-1; H2: 2(N-i)+1 and 2(i-1).
Plan zb_h1_update(int stages, std::int64_t m);
Plan zb_h2_update(int stages, std::int64_t m);
ActionList zero_bubble_row(int stage, std::int64_t m, std::int64_t warm, std::int64_t lag);

// ZB-V of the same paper: rank r holds stages r and 2 ranks - 1 - r. Orders for fewer than 2 ranks - 1 microbatches are those
// for that number with the others left out.
Plan zb_v_update(int ranks, std::int64_t m);

// Searched zero-bubble schedule with at most `limit` microbatches of a stage between forward and weight gradient: a greedy list
// scheduler after the heuristic of the same paper (section 3.1 there), under all settings of its switches, and the hand-made
// orders that fit under the limit. Kept is the one with the shortest longest span of a stage (first forward to last weight
// gradient), then with the shortest makespan. H1 has limit N, H2 2N-1.
Plan zb_auto_update(int stages, std::int64_t m, std::int64_t limit, const PassCosts& costs);

}  // namespace minipipe::schedules
