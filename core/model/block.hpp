#pragma once

#include <cstddef>
#include <vector>

#include "core/model/layer_context.hpp"
#include "core/model/padding.hpp"
#include "core/model/parameter_list.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// A block's parameters, or their gradients: C = width.
template <class T>
struct BlockTensors {
  Vector<T> ln_1_weight, ln_1_bias;  // [C]
  Matrix<T> c_attn_weight;           // [3C, C]
  Vector<T> c_attn_bias;             // [3C]
  Matrix<T> attn_proj_weight;        // [C, C]
  Vector<T> attn_proj_bias;          // [C]
  Vector<T> ln_2_weight, ln_2_bias;  // [C]
  Matrix<T> fc_weight;               // [4C, C]
  Vector<T> fc_bias;                 // [4C]
  Matrix<T> mlp_proj_weight;         // [C, 4C]
  Vector<T> mlp_proj_bias;           // [C]
};

// Views of a block's tensors in a flat buffer; entries[first] is its ln_1.weight.
template <class T>
BlockTensors<T> block_tensors(const Vector<T>& buffer, const std::vector<ParameterEntry>& entries, std::size_t first);

// Offsets, in floats from a slot's start, of what a block's forward keeps for its backward. R = rows = B*T.
// 16 C + 4 + heads floats per row, and padding.
struct BlockActivations {
  std::size_t input;                             // [R, C]: written by whoever comes before
  std::size_t mean_1, rstd_1, norm_1;            // [R], [R], [R, C]
  std::size_t qkv, attention, logsumexp;         // [R, 3C], [R, C], [B*H*T]
  std::size_t residual;                          // [R, C]: input + attention half
  std::size_t mean_2, rstd_2, norm_2, fc, gelu;  // [R], [R], [R, C], [R, 4C], [R, 4C]
};
BlockActivations block_activations(Layout& layout, const ModelConfig& model, const TrainShape& shape);

// Offsets, in floats from the workspace's start, of the output gradient of each layer that has parameters: what the weight
// half needs beside the activations. 11 C floats per row.
struct BlockGradients {
  std::size_t norm_1, qkv, attn_proj, norm_2, fc, mlp_proj;  // [R, C], [R, 3C], [R, C], [R, C], [R, 4C], [R, C]
};
BlockGradients block_gradients(Layout& layout, const ModelConfig& model, const TrainShape& shape);

// Pre-norm transformer block of GPT-2: x + attention(LN(x)), then x + mlp(LN(x)). `block` is its number in the unsplit model.
// T is float or double.

// Reads the input in the slot, writes out [R, C].
template <class T>
void block_forward(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                   const Vector<T>& slot, Matrix<T> out);

// `gradient` [R, C]: on entry that of the output, on return that of the input. Fills the workspace.
template <class T>
void block_backward_input(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                          const Vector<T>& slot, const BlockGradients& work_at, const Vector<T>& workspace, Matrix<T> gradient);

// Adds to the parameters' gradients, from the slot and the workspace alone.
template <class T>
void block_backward_weight(const LayerContext& context, const BlockTensors<T>& gradients, const BlockActivations& at,
                           const Vector<T>& slot, const BlockGradients& work_at, const Vector<T>& workspace);

}  // namespace minipipe::core
