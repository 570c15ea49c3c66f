#pragma once

#include "core/model/attention_branch.hpp"
#include "core/model/experts_branch.hpp"
#include "core/model/mlp_branch.hpp"
#include "core/model/state_space_branch.hpp"

namespace minipipe::core {

// Pre-norm transformer block: the attention branch, then the MLP branch; in a hybrid one branch, of any kind. `block` is its
// number in the unsplit model.
template <class T>
struct BlockTensors {
  AttentionTensors<T> attention;
  MlpTensors<T> mlp;
  ExpertsTensors<T> experts;
  StateSpaceTensors<T> state_space;
};
template <class T>
BlockTensors<T> block_tensors(TensorCursor<T>& next, const ModelConfig& model, const BranchesThere& there) {
  BlockTensors<T> tensors;
  if (there.attention) tensors.attention = attention_tensors<T>(next);
  if (there.mlp) tensors.mlp = mlp_tensors<T>(next);
  if (there.experts) tensors.experts = experts_tensors<T>(next, model);
  if (there.state_space) tensors.state_space = state_space_tensors<T>(next);
  return tensors;
}

// What a block's forward leaves for its backward, R = rows = B*T. Without recomputation all of it is in the slot: for GPT-2
// 16 C + 4 + H floats per row, for LLaMA 6 C + 2 G D + 3 F + 2 + H, and padding. With recomputation the slot has the block's
// input alone (block), or that and the MLP branch's (attention).
struct BlockActivations {
  AttentionActivations attention;
  MlpActivations mlp;
  ExpertsActivations experts;
  StateSpaceActivations state_space;
  Recompute recompute = Recompute::none;
  BlockShare share = {};

  // That of the first branch there is: written by whoever comes before.
  Place input() const {
    if (share.experts) return experts.input;
    if (share.state_space) return state_space.input;
    return share.attention ? attention.input : mlp.input;
  }
};
// A branch that is not computed takes no room.
BlockActivations block_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                   Recompute recompute = Recompute::none, const BlockShare& share = {});

// What the weight half needs beside the activations, in the workspace: 11 C floats per row for GPT-2.
struct BlockGradients {
  AttentionGradients attention;
  MlpGradients mlp;
  ExpertsGradients experts;
  StateSpaceGradients state_space;
};
BlockGradients block_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                               const BlockShare& share = {});

// Both of a block that is computed again and whose backward is whole: what the MLP branch needs is of no more use when the
// attention branch's gradients come, so they lie on it.
struct BlockPlaces {
  BlockActivations activations;
  BlockGradients gradients;
};
BlockPlaces whole_block_places(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                               const BlockShare& share = {});

// Reads the input in the slot, writes out [R, C]. A block without branches does nothing at all: its input is its output.
template <class T>
void block_forward(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                   const BlockMemory<T>& memory, Matrix<T> out);

// First computes what was not kept, with `weights`. `gradient` [R, C]: on entry that of the output, on return that of the
// input. Fills the places of `work`.
template <class T>
void block_backward_input(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                          const BlockGradients& work, const BlockMemory<T>& memory, Matrix<T> gradient);

// Both halves, for blocks with whole_block_places: first of every branch but attention, with what is computed again, then the
// attention branch's.
template <class T>
void whole_backward_others(const LayerContext& context, int block, const BlockTensors<T>& weights,
                           const BlockTensors<Compute<T>>& gradients, const BlockActivations& at, const BlockGradients& work,
                           const BlockMemory<T>& memory, Matrix<T> gradient);
template <class T>
void whole_backward_attention(const LayerContext& context, int block, const BlockTensors<T>& weights,
                              const BlockTensors<Compute<T>>& gradients, const BlockActivations& at, const BlockGradients& work,
                              const BlockMemory<T>& memory, Matrix<T> gradient);

// Adds to the parameters' gradients, from the slot and the workspace alone.
template <class T>
void block_backward_weight(const LayerContext& context, const BlockTensors<Compute<T>>& gradients, const BlockActivations& at,
                           const BlockGradients& work, const BlockMemory<T>& memory);

}  // namespace minipipe::core
