#pragma once

#include <vector>

#include "core/model/block.hpp"
#include "core/model/embedding_layer.hpp"
#include "core/model/head_layer.hpp"
#include "core/model/replica_layout.hpp"

namespace minipipe::core {

// Which branches of a block a list of tensors has.
struct BranchesThere {
  bool attention = true;
  bool mlp = true;
};
inline std::vector<BranchesThere> computed_branches(const std::vector<BlockShare>& shares) {
  std::vector<BranchesThere> there;
  for (const BlockShare& share : shares) there.push_back({share.attention, share.mlp});
  return there;
}
inline std::vector<BranchesThere> trained_branches(const std::vector<BlockShare>& shares) {
  std::vector<BranchesThere> there;
  for (const BlockShare& share : shares) there.push_back({share.attention_trained, share.mlp_trained});
  return there;
}

// Views of all tensors of a stage's layers: its parameters, or their gradients. They lie in one flat buffer, or each layer's
// in a buffer of its own.
template <class T>
struct StageTensors {
  StageTensors(const Vector<T>& buffer, const std::vector<ParameterEntry>& entries, const ModelConfig& model,
               const StageLayers& layers)
      : StageTensors(std::vector<Vector<T>>(StageLayerNumbers::count(layers), buffer), entries, model, layers,
                     std::vector<BranchesThere>(layers.blocks)) {}

  // `buffers`: by layer, see StageLayerNumbers. `there`: by block.
  StageTensors(const std::vector<Vector<T>>& buffers, const std::vector<ParameterEntry>& entries, const ModelConfig& model,
               const StageLayers& layers, const std::vector<BranchesThere>& there) {
    TensorCursor<T> next(buffers.at(StageLayerNumbers::embedding), model, entries);
    if (layers.embedding) {
      embedding.tokens = next.matrix();
      if (!next.kind().rotary) embedding.positions = next.matrix();
    }
    for (int b = 0; b < layers.blocks; ++b) {
      next.go_on_in(buffers.at(StageLayerNumbers::block(b)));
      blocks.push_back(block_tensors<T>(next, there.at(b).attention, there.at(b).mlp));
    }
    if (layers.head) {
      next.go_on_in(buffers.at(StageLayerNumbers::head(layers)));
      head.norm = next.norm();
      head.weight = model.tied ? embedding.tokens : next.matrix();
    }
  }

  EmbeddingTensors<T> embedding;
  std::vector<BlockTensors<T>> blocks;
  HeadTensors<T> head;
};

}  // namespace minipipe::core
