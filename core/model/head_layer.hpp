#pragma once

#include "core/model/block_memory.hpp"
#include "core/model/layer_context.hpp"
#include "core/model/norm.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Final norm, linear layer to the vocabulary and cross-entropy.
template <class T>
struct HeadTensors {
  NormTensors<T> norm;
  Matrix<T> weight;  // [V, C]; the token embedding's when tied
};

// What the forward leaves for the backward, all of it in the slot. V + 2C + 2 floats per row, and padding (RMSNorm: one less).
struct HeadActivations {
  Place input;      // [R, C]: written by whoever comes before; first of all
  NormPlaces norm;  // its output [R, C]
  Place logits;     // [R, V]; the backward overwrites them by their gradient
};
HeadActivations head_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape);

// Between the halves of the backward: the gradient of the norm's output [R, C].
Place head_gradient(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape);

// The forward: the final norm, then the rest. losses [R]: of each token, in nats. A tied head's matrix and the norm may not be
// in memory at the same time, so each function below needs one of them only, but those that do both.
template <class T>
void head_norm(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
               const BlockMemory<T>& memory);
template <class T>
void head_losses(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                 const BlockMemory<T>& memory, ConstVector<std::int32_t> targets, Vector<Compute<T>> losses);
template <class T>
void head_forward(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                  const BlockMemory<T>& memory, ConstVector<std::int32_t> targets, Vector<Compute<T>> losses);

// Gradient of loss_scale times the sum of the losses. The first part writes the place `norm_gradient` and, again, losses, the
// second one gradient [R, C].
template <class T>
void head_backward_logits(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                          Place norm_gradient, const BlockMemory<T>& memory, ConstVector<std::int32_t> targets,
                          Compute<T> loss_scale, Vector<Compute<T>> losses);
template <class T>
void head_backward_norm(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                        Place norm_gradient, const BlockMemory<T>& memory, Matrix<T> gradient);
template <class T>
void head_backward_input(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                         Place norm_gradient, const BlockMemory<T>& memory, ConstVector<std::int32_t> targets,
                         Compute<T> loss_scale, Matrix<T> gradient, Vector<Compute<T>> losses);

// Add to the parameters' gradients, from the slot and the workspace alone.
template <class T>
void head_matrix_backward_weight(const LayerContext& context, const HeadTensors<Compute<T>>& gradients,
                                 const HeadActivations& at, const BlockMemory<T>& memory);
template <class T>
void head_norm_backward_weight(const LayerContext& context, const HeadTensors<Compute<T>>& gradients, const HeadActivations& at,
                               Place norm_gradient, const BlockMemory<T>& memory);
template <class T>
void head_backward_weight(const LayerContext& context, const HeadTensors<Compute<T>>& gradients, const HeadActivations& at,
                          Place norm_gradient, const BlockMemory<T>& memory);

}  // namespace minipipe::core
