#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// GELU in the tanh form of GPT-2: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks, Gimpel, arXiv 1606.08415).
// Elementwise; out may be input.
template <class T>
void gelu_forward(const ExecutionSpace& space, Vector<T> out, ConstVector<T> input);

// values += bias in each row, out = gelu(values): bias_add and gelu_forward in one pass, with the same result to the last bit.
// values and out [R, C], bias [C]; out must not be values.
template <class T>
void bias_gelu_forward(const ExecutionSpace& space, Matrix<T> out, Matrix<T> values, ConstVector<Compute<T>> bias);

// input_gradient = output_gradient gelu'(input); input_gradient may be output_gradient or input.
template <class T>
void gelu_backward(const ExecutionSpace& space, Vector<T> input_gradient, ConstVector<T> output_gradient, ConstVector<T> input);

}  // namespace minipipe::core
