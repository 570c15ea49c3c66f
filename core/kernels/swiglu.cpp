#include "core/kernels/swiglu.hpp"

#include "core/kernels/pack_loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

template <class C, class V>
KOKKOS_INLINE_FUNCTION V sigmoid(V x) {
  constexpr C minus_log2_e = C(-1.4426950408889634073599246810018921);
  return C(1) / (C(1) + power_of_two(x * minus_log2_e));
}

template <class T>
struct Forward {
  T* out;
  const T *gate, *up;

  template <class Lanes>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t i) const {
    const auto x = lanes.load(gate + i);
    lanes.store(out + i, x * sigmoid<Compute<T>>(x) * lanes.load(up + i));
  }
};

template <class T>
struct Backward {
  T *gate_gradient, *up_gradient;
  const T *output_gradient, *gate, *up;

  template <class Lanes>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t i) const {
    const auto gradient = lanes.load(output_gradient + i), x = lanes.load(gate + i), u = lanes.load(up + i);
    const auto s = sigmoid<Compute<T>>(x), weighted = gradient * s;
    const auto one = lanes.all(Compute<T>(1));
    lanes.store(gate_gradient + i, weighted * u * multiply_add(x, one - s, one));
    lanes.store(up_gradient + i, weighted * x);
  }
};

}  // namespace

template <class T>
void swiglu_forward(const ExecutionSpace& space, Vector<T> out, ConstVector<T> gate, ConstVector<T> up) {
  require_shape(out.extent(0) == gate.extent(0) && up.extent(0) == gate.extent(0), "swiglu_forward");
  for_packs<Compute<T>>("minipipe::swiglu::forward", space, extent(out, 0), Forward<T>{out.data(), gate.data(), up.data()});
}

template <class T>
void swiglu_backward(const ExecutionSpace& space, Vector<T> gate_gradient, Vector<T> up_gradient,
                     ConstVector<T> output_gradient, ConstVector<T> gate, ConstVector<T> up) {
  require_shape(gate_gradient.extent(0) == gate.extent(0) && up_gradient.extent(0) == gate.extent(0) &&
                    output_gradient.extent(0) == gate.extent(0) && up.extent(0) == gate.extent(0) &&
                    (gate_gradient.data() != output_gradient.data() || gate.size() == 0),
                "swiglu_backward");
  for_packs<Compute<T>>("minipipe::swiglu::backward", space, extent(gate, 0),
                        Backward<T>{gate_gradient.data(), up_gradient.data(), output_gradient.data(), gate.data(), up.data()});
}

#define MINIPIPE_INSTANTIATE(T)                                                                      \
  template void swiglu_forward<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>, ConstVector<T>); \
  template void swiglu_backward<T>(const ExecutionSpace&, Vector<T>, Vector<T>, ConstVector<T>, ConstVector<T>, ConstVector<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
