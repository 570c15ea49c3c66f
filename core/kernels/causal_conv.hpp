#pragma once

#include "core/kernels/attention.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Depthwise causal convolution over time followed by SiLU, the short convolution of Mamba (Gu, Dao, arXiv 2312.00752):
//   u[b, t, c] = bias[c] + sum_k weight[c, k] x[b, t - K + 1 + k, c],   out = u / (1 + exp(-u)),
// x before the start of a sequence is zero. Rows are b*T + t; x may be some columns of a wider array. weight [C, K] with
// K <= max_conv_width, as the weight [C, 1, K] of a depthwise torch.nn.Conv1d; bias [C]. T is the type in which all but the
// bias and the parameters' gradients is stored.
inline constexpr int max_conv_width = 8;

struct ConvShape {
  std::int64_t batch = 0;     // B
  std::int64_t sequence = 0;  // T
};

// out [B*T, C]. Nothing else is kept: the backward forms u again.
template <class T>
void causal_conv_forward(const ExecutionSpace& space, Matrix<T> out, const Columns<const T>& x, ConstMatrix<T> weight,
                         ConstVector<Compute<T>> bias, const ConvShape& shape);

// Writes the gradient to x, and that to u [B*T, C], which the gradient of the parameters needs. u_gradient may be the same
// memory as output_gradient, x_gradient may not.
template <class T>
void causal_conv_backward_input(const ExecutionSpace& space, const Columns<T>& x_gradient, Matrix<T> u_gradient,
                                ConstMatrix<T> output_gradient, const Columns<const T>& x, ConstMatrix<T> weight,
                                ConstVector<Compute<T>> bias, const ConvShape& shape);

// Adds to the gradients of weight and bias: sums over sequences and time in ascending order.
template <class T>
void causal_conv_backward_parameters(const ExecutionSpace& space, Matrix<Compute<T>> weight_gradient,
                                     Vector<Compute<T>> bias_gradient, ConstMatrix<T> u_gradient, const Columns<const T>& x,
                                     const ConvShape& shape);

}  // namespace minipipe::core
