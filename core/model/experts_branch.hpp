#pragma once

#include <vector>

#include "core/kernels/expert_dispatch.hpp"
#include "core/model/block_memory.hpp"
#include "core/model/layer_context.hpp"
#include "core/model/norm.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_cursor.hpp"

namespace minipipe::core {

// A mixture of experts: out = input + dropout(sum over the k chosen experts of weight * expert(norm(input))). Each expert is a
// SwiGLU MLP of F = expert_width() features; the router has no bias (Shazeer et al., arXiv 1701.06538; Jiang et al., arXiv
// 2401.04088). The load-balancing loss (core/kernels/router.hpp) adds to the router's gradient alone; the reported loss is
// without it.

template <class T>
struct ExpertTensors {
  Matrix<T> gate, up;  // [F, C]
  Matrix<T> down;      // [C, F]
};
template <class T>
struct ExpertsTensors {
  NormTensors<T> norm;
  Matrix<T> router;                       // [E, C]
  std::vector<ExpertTensors<T>> experts;  // E
};
// In this order: norm, router, then each expert's gate, up, down.
template <class T>
ExpertsTensors<T> experts_tensors(TensorCursor<T>& next, const ModelConfig& model);

// R rows, each with k choices: R k slots of all experts together, so that the memory does not depend on the data. Slots from
// offsets[E] on (where a capacity drops pairs) hold nothing. All of the router before its gradient is Compute<T>.
struct ExpertsActivations {
  Place input;                          // [R, C]: written by whoever comes before
  NormPlaces norm;                      // its output [R, C]
  Place probabilities, weights;         // [R, E], [R, k]
  Place choices;                        // [R, k] integers
  Place counts, offsets, slots, pairs;  // integers of the ExpertPlan
  Place load;                           // [E]
  Place gathered;                       // [R k, C]
  Place gate, up, hidden;               // [R k, F]
  Place expert_out;                     // [R k, C]; the input half of the backward leaves the gradient of `gathered` here
  Place balance;                        // one double in the slot: the load-balancing loss of the last forward
  Place logits, integer_workspace;      // [R, E], integers: needed within the forward only
};
ExpertsActivations experts_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                       Recompute recompute);

// The output gradient of each layer that has parameters: what the weight half needs beside the activations.
struct ExpertsGradients {
  Place norm;        // [R, C]; before, within the input half, the gradient of what the dropout takes
  Place logits;      // [R, E]
  Place gate, up;    // [R k, F]
  Place expert_out;  // [R k, C]
  Place weights;     // [R, k], within the input half only
};
ExpertsGradients experts_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape);

// From the input to all that the backward needs. The products of each expert need its number of rows on the host: this waits
// for the device once.
template <class T>
void experts_activate(const LayerContext& context, const ExpertsTensors<T>& weights, const ExpertsActivations& at,
                      const BlockMemory<T>& memory);

template <class T>
void experts_branch_forward(const LayerContext& context, int block, const ExpertsTensors<T>& weights,
                            const ExpertsActivations& at, const BlockMemory<T>& memory, Matrix<T> out);

// `gradient` [R, C]: on entry that of the output, on return that of the input. Fills the places of `work`. The gradient of the
// balance loss is that of context.balance_scale times it.
template <class T>
void experts_branch_backward_input(const LayerContext& context, int block, const ExpertsTensors<T>& weights,
                                   const ExpertsActivations& at, const ExpertsGradients& work, const BlockMemory<T>& memory,
                                   Matrix<T> gradient);

// Adds to the parameters' gradients, from the slot and the workspace alone. Nothing to those of an expert without rows. This
// and the input half wait for the device as the forward does, unless the last of these passes was over the same rows.
template <class T>
void experts_branch_backward_weight(const LayerContext& context, const ExpertsTensors<Compute<T>>& gradients,
                                    const ExpertsActivations& at, const ExpertsGradients& work, const BlockMemory<T>& memory);

}  // namespace minipipe::core
