#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// Rotary position embedding (Su et al., arXiv 2104.09864) in the order of Hugging Face's LLaMA: of a head's D features, i and
// i + D/2 are rotated together, at position t by the angle t base^(-2i/D).

// table [T, D], D even: cosines of the D/2 angles of each position, then their sines. In double: one table serves all types.
void rotary_table(const ExecutionSpace& space, Matrix<double> table, double base);

// Rotates in place. values [B*T, heads D], row b*T + t at position t; table [at least T, D]. `inverse` rotates back, which is
// also the backward: a rotation's transpose.
template <class T>
void rotary_apply(const ExecutionSpace& space, Matrix<T> values, ConstMatrix<double> table, std::int64_t sequence,
                  bool inverse = false);

}  // namespace minipipe::core
