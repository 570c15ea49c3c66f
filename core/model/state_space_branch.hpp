#pragma once

#include "core/kernels/selective_scan.hpp"
#include "core/model/block_memory.hpp"
#include "core/model/layer_context.hpp"
#include "core/model/norm.hpp"
#include "core/model/recompute.hpp"
#include "core/model/tensor_cursor.hpp"

namespace minipipe::core {

// A state-space layer as in Mamba-2 (Dao, Gu, arXiv 2405.21060, section 7):
//   z, xbc, dt = in(norm(input)),   x, b, c = convolution(xbc),   y = scan(x, dt, b, c),
//   out = input + dropout(out_projection(rms_norm(y * silu(z)))).
// I = state_width() features inside, H = state_heads() heads, X = conv_features() = I + 2 G S.

template <class T>
struct StateSpaceTensors {
  NormTensors<T> norm;
  Matrix<T> in;                     // [I + X + H, C]: rows of z, of xbc, of dt
  Matrix<T> conv;                   // [X, K]
  Vector<Compute<T>> conv_bias;     // [X]
  ScanParameters<Compute<T>> scan;  // [H] each; in the list: dt_bias, a_log, d
  Vector<Compute<T>> gated_norm;    // [I]
  Matrix<T> out;                    // [C, I]
};
// In this order: norm, in, conv, conv_bias, dt_bias, a_log, d, gated_norm, out.
template <class T>
StateSpaceTensors<T> state_space_tensors(TensorCursor<T>& next);

struct StateSpaceActivations {
  Place input;                      // [R, C]: written by whoever comes before
  NormPlaces norm;                  // its output [R, C]
  Place z, xbc, dt;                 // [R, I], [R, X], [R, H]
  Place convolved;                  // [R, X]
  Place states;                     // scan_states()
  Place y;                          // [R, I]
  Place gated, gated_rstd, normed;  // [R, I], [R], [R, I]
};
StateSpaceActivations state_space_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                              Recompute recompute);

// The output gradient of each layer that has parameters: what the weight half needs beside the activations.
struct StateSpaceGradients {
  Place norm;          // [R, C]
  Place z, xbc, dt;    // [R, I], [R, X], [R, H]
  Place convolved;     // [R, X]: to the convolution's sum before the activation
  Place sums;          // scan_sums()
  Place normed;        // [R, I]: to the output of the gated norm
  Place out;           // [R, C]
  Place y, workspace;  // within the input half only
};
StateSpaceGradients state_space_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape);

// From the input to the input of the last product: all that the backward needs.
template <class T>
void state_space_activate(const LayerContext& context, const StateSpaceTensors<T>& weights, const StateSpaceActivations& at,
                          const BlockMemory<T>& memory);

template <class T>
void state_space_branch_forward(const LayerContext& context, int block, const StateSpaceTensors<T>& weights,
                                const StateSpaceActivations& at, const BlockMemory<T>& memory, Matrix<T> out);

// `gradient` [R, C]: on entry that of the output, on return that of the input. Fills the places of `work`.
template <class T>
void state_space_branch_backward_input(const LayerContext& context, int block, const StateSpaceTensors<T>& weights,
                                       const StateSpaceActivations& at, const StateSpaceGradients& work,
                                       const BlockMemory<T>& memory, Matrix<T> gradient);

// Adds to the parameters' gradients, from the slot and the workspace alone.
template <class T>
void state_space_branch_backward_weight(const LayerContext& context, const StateSpaceTensors<Compute<T>>& gradients,
                                        const StateSpaceActivations& at, const StateSpaceGradients& work,
                                        const BlockMemory<T>& memory);

}  // namespace minipipe::core
