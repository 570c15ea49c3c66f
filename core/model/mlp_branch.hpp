#pragma once

#include <array>

#include "core/model/block_memory.hpp"
#include "core/model/block_share.hpp"
#include "core/model/layer_context.hpp"
#include "core/model/linear.hpp"
#include "core/model/norm.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_cursor.hpp"

namespace minipipe::core {

// The second half of a block: out = input + dropout(down(activation(up(norm(input))))). The activation is GELU of one map to F
// hidden features, or SwiGLU of two (gate, up).
inline constexpr int most_up_maps = 2;
template <class Value>
using UpMaps = std::array<Value, most_up_maps>;  // GELU uses the first only

template <class T>
struct MlpTensors {
  NormTensors<T> norm;
  UpMaps<LinearTensors<T>> up;  // [F, C]
  LinearTensors<T> down;        // [C, F]
};
template <class T>
MlpTensors<T> mlp_tensors(TensorCursor<T>& next);

struct MlpActivations {
  Place input;       // [R, C]: written by whoever comes before
  NormPlaces norm;   // its output [R, C]
  UpMaps<Place> up;  // [R, F]
  Place hidden;      // [R, F]: the activation's output
  int features = 0;  // F
};
// `share`: of its block. Where no attention branch comes before, the input is the block's.
MlpActivations mlp_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape, Recompute recompute,
                               const BlockShare& share = {});

// The output gradient of each layer that has parameters: what the weight half needs beside the activations.
struct MlpGradients {
  Place norm;        // [R, C]
  UpMaps<Place> up;  // [R, F]
  Place hidden;      // [R, F]: the activation's output, needed within the input half only
  Place down;        // [R, C]
  // Only these hidden features are trained (empty: all): the gradients' tensors are [f, C], [f] and [C, f].
  std::vector<FeatureRun> trained = {};
  Place packed;  // [R, f]: their columns side by side
};
MlpGradients mlp_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                           const BlockShare& share = {});
// For a backward whose weight half is done with its input half: they lie on the activations, except for one [R, C].
MlpGradients mlp_gradients_in_place(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                    const MlpActivations& at, const BlockShare& share = {});

// From the input to the activation's output: all that the backward needs.
template <class T>
void mlp_activate(const LayerContext& context, const MlpTensors<T>& weights, const MlpActivations& at,
                  const BlockMemory<T>& memory);

template <class T>
void mlp_branch_forward(const LayerContext& context, int block, const MlpTensors<T>& weights, const MlpActivations& at,
                        const BlockMemory<T>& memory, Matrix<T> out);

// `gradient` [R, C]: on entry that of the output, on return that of the input. Fills the places of `work`. With
// `weight_gradients` the weight half is done, too, each layer's before anything that it reads may be overwritten.
template <class T>
void mlp_branch_backward_input(const LayerContext& context, int block, const MlpTensors<T>& weights, const MlpActivations& at,
                               const MlpGradients& work, const BlockMemory<T>& memory, Matrix<T> gradient,
                               const MlpTensors<Compute<T>>* weight_gradients = nullptr);

// Adds to the parameters' gradients, from the slot and the workspace alone.
template <class T>
void mlp_branch_backward_weight(const LayerContext& context, const MlpTensors<Compute<T>>& gradients, const MlpActivations& at,
                                const MlpGradients& work, const BlockMemory<T>& memory);

}  // namespace minipipe::core
