#include "core/kernels/swiglu.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

template <class T>
void swiglu_forward(const ExecutionSpace& space, Vector<T> out, ConstVector<T> gate, ConstVector<T> up) {
  require_shape(out.extent(0) == gate.extent(0) && up.extent(0) == gate.extent(0), "swiglu_forward");
  T* y = out.data();
  const T* g = gate.data();
  const T* u = up.data();
  for_elements(
      "minipipe::swiglu::forward", space, extent(out, 0), KOKKOS_LAMBDA(const std::int64_t i) {
        const Compute<T> x = g[i];
        y[i] = x / (Compute<T>(1) + exponential(-x)) * u[i];
      });
}

template <class T>
void swiglu_backward(const ExecutionSpace& space, Vector<T> gate_gradient, Vector<T> up_gradient,
                     ConstVector<T> output_gradient, ConstVector<T> gate, ConstVector<T> up) {
  require_shape(gate_gradient.extent(0) == gate.extent(0) && up_gradient.extent(0) == gate.extent(0) &&
                    output_gradient.extent(0) == gate.extent(0) && up.extent(0) == gate.extent(0) &&
                    (gate_gradient.data() != output_gradient.data() || gate.size() == 0),
                "swiglu_backward");
  using C = Compute<T>;
  T* dg = gate_gradient.data();
  T* du = up_gradient.data();
  const T* dy = output_gradient.data();
  const T* g = gate.data();
  const T* u = up.data();
  for_elements(
      "minipipe::swiglu::backward", space, extent(gate, 0), KOKKOS_LAMBDA(const std::int64_t i) {
        const C gradient = dy[i], x = g[i];
        const C sigmoid = C(1) / (C(1) + exponential(-x));
        dg[i] = gradient * u[i] * sigmoid * (1 + x * (1 - sigmoid));
        du[i] = gradient * x * sigmoid;
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                      \
  template void swiglu_forward<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>, ConstVector<T>); \
  template void swiglu_backward<T>(const ExecutionSpace&, Vector<T>, Vector<T>, ConstVector<T>, ConstVector<T>, ConstVector<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
