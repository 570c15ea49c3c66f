#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// values[r, c] += bias[c]; values [R, C].
template <class T>
void bias_add(const ExecutionSpace& space, Matrix<T> values, ConstVector<Compute<T>> bias);

// gradient[c] += sum over r of output_gradient[r, c], in an order that does not depend on threads.
template <class T>
void bias_gradient(const ExecutionSpace& space, Vector<Compute<T>> gradient, ConstMatrix<T> output_gradient);

}  // namespace minipipe::core
