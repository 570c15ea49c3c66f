#pragma once

#include <cstdint>

#include "schedules/sdp/masks.hpp"

namespace minipipe::schedules {

// The units of a pipeline stage: those of its blocks, one block after the other.
struct StageMaskOptions {
  int workers = 1;
  int first_block = 0;      // its number in the model
  int blocks = 1;           // of the stage; none: no units
  int units_per_block = 1;  // 1: whole blocks; 2: attention and MLP; else groups of neurons
  bool each_block = false;  // coverage holds in each block (neurons), not in the stage as a whole
  double coverage = 1.0;
  MaskGenerator generator = MaskGenerator::cyclic;
  std::uint64_t seed = 1;  // random only
};

// make_masks for the units of the stage. Random masks of different stages are independent draws. With each_block the masks of a
// block depend on its number in the model, not on the split into stages; every worker holds equally many units of each block,
// and cyclic neighbours differ from block to block where the number of workers allows it. Errors as make_masks.
Masks make_stage_masks(const StageMaskOptions& options);

}  // namespace minipipe::schedules
