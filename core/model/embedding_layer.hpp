#pragma once

#include "core/model/layer_context.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Token embedding, position table (if the family has one) and dropout: the first layer. It keeps no floats: tokens [B, T] stay
// in the slot.
template <class T>
struct EmbeddingTensors {
  Matrix<T> tokens;     // [V, C]
  Matrix<T> positions;  // [context, C], or empty
};

// out [B*T, C].
template <class T>
void embedding_layer_forward(const LayerContext& context, const EmbeddingTensors<T>& weights, ConstMatrix<std::int32_t> tokens,
                             Matrix<T> out);

// There is no input to differentiate for: this is the weight half. Adds to the gradients; `output_gradient` [B*T, C] is used
// up.
template <class T>
void embedding_layer_backward_weight(const LayerContext& context, const EmbeddingTensors<Compute<T>>& gradients,
                                     ConstMatrix<std::int32_t> tokens, Matrix<T> output_gradient);

}  // namespace minipipe::core
