#pragma once

#include <vector>

#include "core/model/block.hpp"
#include "core/model/embedding_layer.hpp"
#include "core/model/head_layer.hpp"

namespace minipipe::core {

// Views of all tensors of a stage's layers in one flat buffer: its parameters, or their gradients.
template <class T>
struct StageTensors {
  StageTensors(const Vector<T>& buffer, const std::vector<ParameterEntry>& entries, const ModelConfig& model,
               const StageLayers& layers) {
    TensorCursor<T> next(buffer, model, entries);
    if (layers.embedding) {
      embedding.tokens = next.matrix();
      if (!next.kind().rotary) embedding.positions = next.matrix();
    }
    for (int b = 0; b < layers.blocks; ++b) blocks.push_back(block_tensors<T>(next));
    if (layers.head) {
      head.norm = next.norm();
      head.weight = model.tied ? embedding.tokens : next.matrix();
    }
  }

  EmbeddingTensors<T> embedding;
  std::vector<BlockTensors<T>> blocks;
  HeadTensors<T> head;
};

}  // namespace minipipe::core
