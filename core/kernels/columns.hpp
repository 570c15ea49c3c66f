#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// out[r, out_column + c] = input[r, column + c] for c in [0, columns). Both have the same rows; the ranges must lie inside.
template <class T>
void copy_columns(const ExecutionSpace& space, Matrix<T> out, int out_column, ConstMatrix<T> input, int column, int columns);

}  // namespace minipipe::core
