#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// RMSNorm over the columns (Zhang, Sennrich, arXiv 1910.07467): out = input rstd gamma, rstd = 1/sqrt(mean(input^2) + epsilon).
// input, out [R, C]; rstd [R]; gamma [C].
template <class T>
void rms_norm_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> rstd, ConstMatrix<T> input,
                      ConstVector<Compute<T>> gamma, Compute<T> epsilon);

// Gradient to the input; with `accumulate` it is added to input_gradient (the gradient that came along the residual).
// input_gradient may be the same memory as output_gradient if accumulate is false.
template <class T>
void rms_norm_backward_input(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> output_gradient,
                             ConstMatrix<T> input, ConstVector<Compute<T>> rstd, ConstVector<Compute<T>> gamma,
                             bool accumulate);

// Adds to the gradient [C] of gamma.
template <class T>
void rms_norm_backward_parameters(const ExecutionSpace& space, Vector<Compute<T>> gamma_gradient,
                                  ConstMatrix<T> output_gradient, ConstMatrix<T> input, ConstVector<Compute<T>> rstd);

}  // namespace minipipe::core
