#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// out[b*T + t, :] = token_table[tokens[b, t], :] + position_table[t, :].
// out [B*T, C], tokens [B, T] with values below V, token_table [V, C], position_table [at least T, C] or empty: then no
// positions are added.
template <class T>
void embedding_forward(const ExecutionSpace& space, Matrix<T> out, ConstMatrix<std::int32_t> tokens, ConstMatrix<T> token_table,
                       ConstMatrix<T> position_table);

// Adds to both gradients (position_gradient may be empty). Rows that share a token are added in ascending row order by the one
// thread that owns the token's columns.
template <class T>
void embedding_backward(const ExecutionSpace& space, Matrix<Compute<T>> token_gradient, Matrix<Compute<T>> position_gradient,
                        ConstMatrix<T> output_gradient, ConstMatrix<std::int32_t> tokens);

}  // namespace minipipe::core
