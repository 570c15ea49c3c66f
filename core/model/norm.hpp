#pragma once

#include "core/model/block_memory.hpp"
#include "core/model/layer_context.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// The norm of the model's family: LayerNorm or RMSNorm.
template <class T>
struct NormTensors {
  Vector<Compute<T>> weight, bias;  // [C]; RMSNorm has no bias
};

// What the forward leaves for the backward, and its output.
struct NormPlaces {
  Place mean, rstd, out;  // [R] (LayerNorm only), [R], [R, C]
};
NormPlaces norm_places(BlockLayout& layout, Lifetime lifetime, const ModelConfig& model, const TrainShape& shape);

template <class T>
void norm_forward(const LayerContext& context, const NormTensors<T>& weights, const NormPlaces& at,
                  const BlockMemory<T>& memory, ConstMatrix<T> input);

// As the kernels': writes the gradient to the input [R, C] or, with `accumulate`, adds it.
template <class T>
void norm_backward_input(const LayerContext& context, const NormTensors<T>& weights, const NormPlaces& at,
                         const BlockMemory<T>& memory, ConstMatrix<T> input, ConstMatrix<T> output_gradient, Matrix<T> gradient,
                         bool accumulate);

// Adds to the parameters' gradients.
template <class T>
void norm_backward_weight(const LayerContext& context, const NormTensors<Compute<T>>& gradients, const NormPlaces& at,
                          const BlockMemory<T>& memory, ConstMatrix<T> input, ConstMatrix<T> output_gradient);

}  // namespace minipipe::core
