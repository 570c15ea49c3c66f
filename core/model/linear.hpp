#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// T, here and in all layers: the type in which activations and matrices of weights are stored (core/types): float, double or
// bf16. Vectors of weights and all gradients of weights are of type Compute<T>.
//
// Linear layers with weights [out_features, in_features]. An empty bias is none.
template <class T>
struct LinearTensors {
  Matrix<T> weight;         // [O, I]
  Vector<Compute<T>> bias;  // [O]
};

// out[R, O] = input[R, I] weight^T + bias.
template <class T>
void linear_forward(const ExecutionSpace& space, Matrix<T> out, ConstMatrix<T> input, ConstMatrix<T> weight,
                    ConstVector<Compute<T>> bias);

// input_gradient[R, I] = output_gradient[R, O] weight; with `accumulate` it is added.
template <class T>
void linear_backward_input(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> output_gradient,
                           ConstMatrix<T> weight, bool accumulate = false);

// weight_gradient += output_gradient^T input, or `fresh` without what lies there; bias_gradient += column sums of
// output_gradient.
template <class T>
void linear_backward_weight(const ExecutionSpace& space, Matrix<Compute<T>> weight_gradient, Vector<Compute<T>> bias_gradient,
                            ConstMatrix<T> output_gradient, ConstMatrix<T> input, bool fresh = false);

}  // namespace minipipe::core
