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

// What becomes of the logits.
enum class HeadLogits {
  kept,   // in the slot, all [R, V]; the backward overwrites them by their gradient, which the weight half reads
  again,  // a chunk of rows at a time in scratch memory; the backward, which must be whole, computes them and the norm again
  once    // a chunk of rows at a time in the slot: no backward follows
};

// All products of the head go through its rows in chunks of so many, whatever becomes of the logits, so that every sum over
// rows is formed in the same order. Made from the number of rows alone: an eighth of them, but no fewer than the products need
// to be efficient. A multiple of 32, so that chunks start at multiples of 64 bytes.
int head_chunk_rows(int rows);

// What the forward leaves for the backward. With `kept` logits all of it is in the slot: V + 2C + 2 floats per row, and padding
// (RMSNorm: one less).
struct HeadActivations {
  Place input;      // [R, C]: written by whoever comes before; first of all
  NormPlaces norm;  // its output [R, C]
  Place logits;     // [R, V], or [chunk, V]
  HeadLogits kind = HeadLogits::kept;
};
HeadActivations head_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                 HeadLogits logits = HeadLogits::kept);

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
// second one gradient [R, C]. Where logits are computed again, the first part adds to `weight_gradient` [V, C], too, and it
// needs the norm and the matrix at the same time; else the weight half does that, and `weight_gradient` is not used.
template <class T>
void head_backward_logits(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                          Place norm_gradient, const BlockMemory<T>& memory, ConstVector<std::int32_t> targets,
                          Compute<T> loss_scale, Vector<Compute<T>> losses, Matrix<Compute<T>> weight_gradient = {});
template <class T>
void head_backward_norm(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                        Place norm_gradient, const BlockMemory<T>& memory, Matrix<T> gradient);
template <class T>
void head_backward_input(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                         Place norm_gradient, const BlockMemory<T>& memory, ConstVector<std::int32_t> targets,
                         Compute<T> loss_scale, Matrix<T> gradient, Vector<Compute<T>> losses);

// Add to the parameters' gradients, from the slot and the workspace alone. The matrix's: only with `kept` logits.
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
