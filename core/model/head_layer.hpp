#pragma once

#include <cstddef>

#include "core/model/layer_context.hpp"
#include "core/model/padding.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Final LayerNorm, linear layer to the vocabulary and cross-entropy. T is float or double.
template <class T>
struct HeadTensors {
  Vector<T> norm_weight, norm_bias;  // [C]
  Matrix<T> weight;                  // [V, C]; the token embedding's when tied
};

// Offsets, in floats from a slot's start, of what the forward keeps. V + 2C + 2 floats per row, and padding.
struct HeadActivations {
  std::size_t input;             // [R, C]: written by whoever comes before
  std::size_t mean, rstd, norm;  // [R], [R], [R, C]
  std::size_t logits;            // [R, V]; the backward overwrites them by their gradient
};
HeadActivations head_activations(Layout& layout, const ModelConfig& model, const TrainShape& shape);

// Floats of the workspace between the halves of the backward: the gradient of the LayerNorm's output [R, C].
std::size_t head_workspace(const ModelConfig& model, const TrainShape& shape);

// losses [R]: of each token, in nats.
template <class T>
void head_forward(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at, const Vector<T>& slot,
                  ConstVector<std::int32_t> targets, Vector<T> losses);

// Gradient of loss_scale times the sum of the losses. Writes gradient [R, C], the workspace [R, C] and, again, losses.
template <class T>
void head_backward_input(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                         const Vector<T>& slot, ConstVector<std::int32_t> targets, T loss_scale, Matrix<T> workspace,
                         Matrix<T> gradient, Vector<T> losses);

// Adds to the parameters' gradients, from the slot and the workspace alone.
template <class T>
void head_backward_weight(const LayerContext& context, const HeadTensors<T>& gradients, const HeadActivations& at,
                          const Vector<T>& slot, Matrix<T> workspace);

}  // namespace minipipe::core
