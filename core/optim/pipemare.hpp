#pragma once

#include <cstdint>

#include "core/types/types.hpp"

namespace minipipe::core {

// Corrections for a delay of `delay` updates (PipeMare: Yang et al., arXiv 1910.05124).

// T1: the learning rate is divided by delay^(1 - min(step / annealing_steps, 1)), if delay > 1; `step` counts updates from 0.
double pipemare_rate_divisor(std::int64_t step, std::int64_t annealing_steps, double delay);

// T2's gamma: decay^(1 / delay); 0 without a delay.
double pipemare_gamma(double decay, double delay);

// T2, after an update. On entry `corrected` holds the weights before it:
//   velocity = gamma velocity + (1 - gamma) (weights - corrected),   corrected = weights - delay velocity.
// All of the same size.
template <class T>
void pipemare_correct(const ExecutionSpace& space, Vector<T> velocity, Vector<T> corrected, ConstVector<T> weights,
                      double gamma, double delay);

}  // namespace minipipe::core
