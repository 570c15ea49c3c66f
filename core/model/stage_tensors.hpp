#pragma once

#include <vector>

#include "core/model/block.hpp"
#include "core/model/embedding_layer.hpp"
#include "core/model/head_layer.hpp"
#include "core/model/replica_layout.hpp"

namespace minipipe::core {

// buffer_of(layer) of each layer.
template <class BufferOf>
std::vector<Vector<float>> by_layer(const StageLayers& layers, const BufferOf& buffer_of) {
  std::vector<Vector<float>> buffers;
  for (int layer = 0; layer < StageLayerNumbers::count(layers); ++layer) buffers.push_back(buffer_of(layer));
  return buffers;
}

// Views of all tensors of a stage's layers: its parameters, or their gradients. They lie in one flat buffer, or each layer's
// in a buffer of its own; matrices that are stored narrower lie elsewhere.
template <class T>
struct StageTensors {
  StageTensors(const Vector<Compute<T>>& buffer, const std::vector<ParameterEntry>& entries, const ModelConfig& model,
               const StageLayers& layers)
      : StageTensors(std::vector<Vector<Compute<T>>>(StageLayerNumbers::count(layers), buffer), entries, model, layers,
                     computed_branches(full_shares(model, layers))) {}

  // `buffers`: by layer, see StageLayerNumbers. `there`: by block. `copies`: needed where T is not Compute<T>.
  StageTensors(const std::vector<Vector<Compute<T>>>& buffers, const std::vector<ParameterEntry>& entries,
               const ModelConfig& model, const StageLayers& layers, const std::vector<BranchesThere>& there,
               const MatrixCopies<T>& copies = {}) {
    TensorCursor<T> next(buffers.at(StageLayerNumbers::embedding), model, entries);
    next.matrices_in(copies, StageLayerNumbers::embedding);
    if (layers.embedding) {
      embedding.tokens = next.matrix();
      if (!next.kind().rotary) embedding.positions = next.matrix();
    }
    for (int b = 0; b < layers.blocks; ++b) {
      next.go_on_in(buffers.at(StageLayerNumbers::block(b)));
      next.matrices_in(copies, StageLayerNumbers::block(b));
      blocks.push_back(block_tensors<T>(next, model, there.at(b)));
    }
    if (layers.head) {
      next.go_on_in(buffers.at(StageLayerNumbers::head(layers)));
      next.matrices_in(copies, StageLayerNumbers::head(layers));
      head.norm = next.norm();
      head.weight = model.tied ? embedding.tokens : next.matrix();
    }
  }

  EmbeddingTensors<T> embedding;
  std::vector<BlockTensors<T>> blocks;
  HeadTensors<T> head;
};

}  // namespace minipipe::core
