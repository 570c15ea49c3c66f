#pragma once

#include <cstddef>
#include <vector>

#include "core/model/block.hpp"
#include "core/model/head_layer.hpp"
#include "core/model/replica_layout.hpp"
#include "core/model/stage_options.hpp"

namespace minipipe::core {

// Where everything of a stage lies in its allocations. Made from the options alone, so that the memory plan and the stage
// cannot disagree.
struct StageLayout {
  explicit StageLayout(const KokkosStageOptions& options);
  // The same, where the layout of the replica's parameters is known.
  StageLayout(const KokkosStageOptions& options, const ReplicaLayout& replica);

  // An activation slot, in floats (two numbers of bf16 in one). `head` is meaningful on the last stage only.
  std::vector<BlockActivations> blocks;
  HeadActivations head{};
  std::size_t slot_floats = 0;

  // What this replica computes and trains.
  std::vector<BlockShare> shares;

  // SDP evaluates the full model: one block's activations, which all blocks share and then the head, in the memory of the
  // slots if they fit there, else in memory of their own. With recomputed blocks only the input is there; the rest lies in a
  // workspace and scratch memory, as in a pass.
  BlockActivations evaluation_block{};
  HeadActivations evaluation_head{};
  std::size_t evaluation_floats = 0;
  std::size_t evaluation_memory = 0;  // floats of their own memory

  // The integers of a slot: tokens on the first stage, targets on the last.
  std::size_t tokens = 0;
  std::size_t targets = 0;
  std::size_t slot_integers = 0;

  // A workspace, in floats: gradients and, with recomputation, activations on their way to the weight half. One for all
  // backwards, its blocks lying on each other; with a split backward one per slot, because they wait there.
  std::size_t gradient = 0;  // [R, C] that runs down the layers; on the first stage only: others write it to the message
  std::vector<BlockGradients> block_gradients;
  bool whole_blocks = false;  // see whole_block_places
  Place head_gradient{};
  std::size_t workspace_floats = 0;
  std::int64_t workspaces = 1;

  // What is computed again and needed within one pass of one block only.
  std::size_t scratch_floats = 0;

  // Doubles of the table of rotary positions; 0 without.
  std::size_t rotary = 0;

  // Losses of each token and, in double, of microbatches that were not taken yet (and one of an evaluation).
  std::size_t token_losses = 0;
  std::size_t loss_capacity = 0;

  // For the sums of squares of gradients, in doubles.
  std::size_t squares = 0;
  std::size_t sum_workspace = 0;

 private:
  void plan_evaluation(const KokkosStageOptions& options);
};

}  // namespace minipipe::core
