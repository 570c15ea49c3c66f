#pragma once

#include "core/types/types.hpp"

namespace minipipe::core {

// SwiGLU (Shazeer, arXiv 2002.05202): out = silu(gate) up, silu(x) = x / (1 + exp(-x)). Elementwise, all of one size.
template <class T>
void swiglu_forward(const ExecutionSpace& space, Vector<T> out, ConstVector<T> gate, ConstVector<T> up);

// Writes both gradients; up_gradient may be output_gradient, gate_gradient may not. gate_gradient may be gate, and up_gradient
// up.
template <class T>
void swiglu_backward(const ExecutionSpace& space, Vector<T> gate_gradient, Vector<T> up_gradient,
                     ConstVector<T> output_gradient, ConstVector<T> gate, ConstVector<T> up);

}  // namespace minipipe::core
