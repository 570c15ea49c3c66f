#include "core/kernels/gelu.hpp"

#include "core/kernels/pack_loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// (1 + tanh(u))/2 = 1/(1 + exp(-2u)): one exponential, and no cancellation where tanh(u) is near -1. The exponent is formed to
// base 2: -2 log2(e) u = x (linear + third x^2). V: a number or a pack of them.
template <class V, class C>
struct Gelu {
  static constexpr C root = C(0.7978845608028653558798921198687637);  // sqrt(2/pi)
  static constexpr C cubic = C(0.044715);
  static constexpr C log2_e = C(1.4426950408889634073599246810018921);
  static constexpr C linear = -2 * root * log2_e, third = linear * cubic;

  KOKKOS_INLINE_FUNCTION static V constant(C value) { return V{} + value; }
  KOKKOS_INLINE_FUNCTION static V gate(V x, V square) {
    const V exponent = x * multiply_add(constant(third), square, constant(linear));
    return constant(1) / (constant(1) + power_of_two(exponent));
  }
  KOKKOS_INLINE_FUNCTION static V value(V x) { return x * gate(x, x * x); }
  KOKKOS_INLINE_FUNCTION static V derivative(V x) {
    const V square = x * x, s = gate(x, square);
    const V slope = multiply_add(constant(6 * root * cubic), square, constant(2 * root));  // of 2u
    return multiply_add(s * (constant(1) - s), x * slope, s);
  }
};

template <class T>
struct Forward {
  T* out;
  const T* input;

  template <class Lanes>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t i) const {
    const auto x = lanes.load(input + i);
    lanes.store(out + i, Gelu<std::decay_t<decltype(x)>, Compute<T>>::value(x));
  }
};

template <class T>
struct BiasForward {
  T *out, *values;
  const Compute<T>* bias;

  template <class Lanes>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t c) const {
    const auto x = as_stored<T>(lanes.load(values + c) + lanes.load(bias + c));
    lanes.store(values + c, x);
    lanes.store(out + c, Gelu<std::decay_t<decltype(x)>, Compute<T>>::value(x));
  }
};

template <class T>
struct Backward {
  T* input_gradient;
  const T *output_gradient, *input;

  template <class Lanes>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t i) const {
    const auto x = lanes.load(input + i), dy = lanes.load(output_gradient + i);
    lanes.store(input_gradient + i, dy * Gelu<std::decay_t<decltype(x)>, Compute<T>>::derivative(x));
  }
};

}  // namespace

template <class T>
void gelu_forward(const ExecutionSpace& space, Vector<T> out, ConstVector<T> input) {
  require_shape(out.extent(0) == input.extent(0), "gelu_forward");
  for_packs<Compute<T>>("minipipe::gelu::forward", space, extent(out, 0), Forward<T>{out.data(), input.data()});
}

template <class T>
void bias_gelu_forward(const ExecutionSpace& space, Matrix<T> out, Matrix<T> values, ConstVector<Compute<T>> bias) {
  const std::int64_t columns = extent(values, 1);
  require_shape(extent(bias, 0) == columns && extent(out, 1) == columns && out.extent(0) == values.extent(0) &&
                    (out.data() != values.data() || out.size() == 0),
                "bias_gelu_forward");
  for_rows(
      "minipipe::gelu::bias_forward", space, extent(values, 0), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        row_packs<Compute<T>>(member, columns, BiasForward<T>{row_pointer(out, row), row_pointer(values, row), bias.data()});
      });
}

template <class T>
void gelu_backward(const ExecutionSpace& space, Vector<T> input_gradient, ConstVector<T> output_gradient,
                   ConstVector<T> input) {
  require_shape(input_gradient.extent(0) == input.extent(0) && output_gradient.extent(0) == input.extent(0), "gelu_backward");
  for_packs<Compute<T>>("minipipe::gelu::backward", space, extent(input, 0),
                        Backward<T>{input_gradient.data(), output_gradient.data(), input.data()});
}

#define MINIPIPE_INSTANTIATE(T)                                                                             \
  template void bias_gelu_forward<T>(const ExecutionSpace&, Matrix<T>, Matrix<T>, ConstVector<Compute<T>>); \
  template void gelu_forward<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>);                          \
  template void gelu_backward<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>, ConstVector<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
