#pragma once

#include <vector>

#include "core/model/model_config.hpp"

namespace minipipe::core {

// The contiguous run of layers of one stage. The layers of a model are: embedding, blocks 0 .. L-1, head (final norm,
// linear layer to the vocabulary, cross-entropy).
struct StageLayers {
  bool embedding = false;
  int first_block = 0;
  int blocks = 0;
  bool head = false;

  friend bool operator==(const StageLayers&, const StageLayers&) = default;
};

// Matrix-product flops of a layer's forward per token, in units of the first block's: what the balanced partition weighs.
// The embedding multiplies no matrices; its memory traffic is charged as that of a few element-wise operations.
struct LayerCosts {
  double embedding = 0;
  std::vector<double> blocks;
  double head = 0;
};
LayerCosts layer_costs(const ModelConfig& model, int sequence);

// Splits the model over `stages` stages.
// `blocks_per_stage` empty: at least one block on every stage, the cost of the slowest stage is smallest, and among such
// splits the costs are as even as they can be (least sum of squares).
// Otherwise: that many blocks on each stage; 0 is allowed on the first stage (embedding alone) and on the last (head alone).
// Throws InputError naming `schedule.partition` or `model.layers` if there is no such split.
std::vector<StageLayers> partition_model(const ModelConfig& model, int sequence, int stages,
                                         const std::vector<int>& blocks_per_stage = {});

}  // namespace minipipe::core
