#pragma once

#include <array>

#include "core/model/block_memory.hpp"
#include "core/model/layer_context.hpp"
#include "core/model/linear.hpp"
#include "core/model/norm.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_cursor.hpp"

namespace minipipe::core {

// The first half of a block: out = input + dropout(projection(attention(norm(input)))).

// Projections from the norm's output to query, key and value: one of 3C features (fused), or C, G D and G D. D = C / H features
// per head, G key-value heads.
inline constexpr int most_qkv_maps = 3;
template <class Value>
using QkvMaps = std::array<Value, most_qkv_maps>;  // the fused projection uses the first only

template <class T>
struct AttentionTensors {
  NormTensors<T> norm;
  QkvMaps<LinearTensors<T>> qkv;
  LinearTensors<T> projection;  // [C, C]
};
template <class T>
AttentionTensors<T> attention_tensors(TensorCursor<T>& next);

// Per row 3 C + 2 G D elements beside the input, and H + 1 wide ones; with LayerNorm one more.
struct AttentionActivations {
  Place input;               // [R, C]: written by whoever comes before
  NormPlaces norm;           // its output [R, C]
  QkvMaps<Place> qkv;        // [R, features]; rotated where positions are rotary
  Place context, logsumexp;  // [R, C], [B*H*T]: attention's output
};
AttentionActivations attention_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                           Recompute recompute);

// The output gradient of each layer that has parameters: what the weight half needs beside the activations.
struct AttentionGradients {
  Place norm;          // [R, C]
  QkvMaps<Place> qkv;  // [R, features]
  Place projection;    // [R, C]
  Place query_sums;    // [R, C], wide: where activations are stored narrower than they are computed
};
AttentionGradients attention_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape);

// From the input to attention's output: all that the backward needs.
template <class T>
void attention_activate(const LayerContext& context, int block, const AttentionTensors<T>& weights,
                        const AttentionActivations& at, const BlockMemory<T>& memory);

template <class T>
void attention_branch_forward(const LayerContext& context, int block, const AttentionTensors<T>& weights,
                              const AttentionActivations& at, const BlockMemory<T>& memory, Matrix<T> out);

// `gradient` [R, C]: on entry that of the output, on return that of the input. Fills the places of `work`.
template <class T>
void attention_branch_backward_input(const LayerContext& context, int block, const AttentionTensors<T>& weights,
                                     const AttentionActivations& at, const AttentionGradients& work,
                                     const BlockMemory<T>& memory, Matrix<T> gradient);

// Adds to the parameters' gradients, from the slot and the workspace alone.
template <class T>
void attention_branch_backward_weight(const LayerContext& context, const AttentionTensors<Compute<T>>& gradients,
                                      const AttentionActivations& at, const AttentionGradients& work,
                                      const BlockMemory<T>& memory);

}  // namespace minipipe::core
