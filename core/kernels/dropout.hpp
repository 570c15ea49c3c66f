#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// Which elements are dropped is a function of these numbers and the element's index: forward, backward, recomputation and any
// partition see the same mask, and nothing is stored. `layer` must differ between all places of the model that drop.
struct Dropout {
  double probability = 0;  // in [0, 1); 0 turns it off
  std::uint64_t seed = 0;
  std::uint32_t layer = 0;
  std::uint32_t microbatch = 0;
};

// out[i] = keep(i) ? input[i] / (1 - probability) : 0. The backward is the same function applied to the gradient.
// out may be input. With probability 0: a copy (nothing at all if out is input).
template <class T>
void dropout(const ExecutionSpace& space, Vector<T> out, ConstVector<T> input, const Dropout& options);

// values = residual + dropout(values) in one pass; residual must not be values.
template <class T>
void dropout_residual_add(const ExecutionSpace& space, Vector<T> values, ConstVector<T> residual, const Dropout& options);

}  // namespace minipipe::core
