#include "core/optim/pipemare.hpp"

#include <algorithm>
#include <cmath>

#include "core/kernels/loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

double pipemare_rate_divisor(std::int64_t step, std::int64_t annealing_steps, double delay) {
  if (delay <= 1 || annealing_steps <= 0) return 1;
  const double done = static_cast<double>(step) / static_cast<double>(annealing_steps);
  return std::pow(delay, 1 - std::min(done, 1.0));
}

double pipemare_gamma(double decay, double delay) { return delay > 0 ? std::pow(decay, 1 / delay) : 0.0; }

template <class T>
void pipemare_correct(const ExecutionSpace& space, Vector<T> velocity, Vector<T> corrected, ConstVector<T> weights,
                      double gamma, double delay) {
  require_shape(corrected.extent(0) == weights.extent(0) && velocity.extent(0) == weights.extent(0), "pipemare_correct");
  const T keep = static_cast<T>(gamma), take = static_cast<T>(1 - gamma), tau = static_cast<T>(delay);
  T* const d = velocity.data();
  T* const out = corrected.data();
  const T* const w = weights.data();
  for_elements(
      "minipipe::pipemare::correct", space, extent(weights, 0), KOKKOS_LAMBDA(const std::int64_t i) {
        const T next = keep * d[i] + take * (w[i] - out[i]);
        d[i] = next;
        out[i] = w[i] - tau * next;
      });
}

#define MINIPIPE_INSTANTIATE(T) \
  template void pipemare_correct<T>(const ExecutionSpace&, Vector<T>, Vector<T>, ConstVector<T>, double, double);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
