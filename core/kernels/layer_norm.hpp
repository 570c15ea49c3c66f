#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// LayerNorm over the columns (Ba, Kiros, Hinton, arXiv 1607.06450): out = (input - mean) rstd gamma + beta,
// rstd = 1/sqrt(variance + epsilon), biased variance. input, out [R, C]; mean, rstd [R]; gamma, beta [C].
template <class T>
void layer_norm_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> mean, Vector<Compute<T>> rstd,
                        ConstMatrix<T> input, ConstVector<Compute<T>> gamma, ConstVector<Compute<T>> beta, Compute<T> epsilon);

// Gradient to the input; with `accumulate` it is added to input_gradient (the gradient that came along the residual).
// input_gradient may be the same memory as output_gradient if accumulate is false.
template <class T>
void layer_norm_backward_input(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> output_gradient,
                               ConstMatrix<T> input, ConstVector<Compute<T>> mean, ConstVector<Compute<T>> rstd,
                               ConstVector<Compute<T>> gamma, bool accumulate);

// Adds to the gradients [C] of gamma and beta.
template <class T>
void layer_norm_backward_parameters(const ExecutionSpace& space, Vector<Compute<T>> gamma_gradient,
                                    Vector<Compute<T>> beta_gradient, ConstMatrix<T> output_gradient, ConstMatrix<T> input,
                                    ConstVector<Compute<T>> mean, ConstVector<Compute<T>> rstd);

}  // namespace minipipe::core
