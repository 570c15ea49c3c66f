#include "core/kernels/gelu.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// (1 + tanh(u))/2 = 1/(1 + exp(-2u)): one exponential, and no cancellation where tanh(u) is near -1.
template <class T>
struct Gelu {
  static constexpr T root = T(0.7978845608028653558798921198687637);  // sqrt(2/pi)
  static constexpr T cubic = T(0.044715);

  KOKKOS_INLINE_FUNCTION static T gate(T x) { return T(1) / (T(1) + exponential(-2 * root * (x + cubic * x * x * x))); }
  KOKKOS_INLINE_FUNCTION static T value(T x) { return x * gate(x); }
  KOKKOS_INLINE_FUNCTION static T derivative(T x) {
    const T s = gate(x);
    return s + x * s * (1 - s) * (2 * root * (1 + 3 * cubic * x * x));
  }
};

}  // namespace

template <class T>
void gelu_forward(const ExecutionSpace& space, Vector<T> out, ConstVector<T> input) {
  require_shape(out.extent(0) == input.extent(0), "gelu_forward");
  T* y = out.data();
  const T* x = input.data();
  for_elements(
      "minipipe::gelu::forward", space, extent(out, 0),
      KOKKOS_LAMBDA(const std::int64_t i) { y[i] = Gelu<Compute<T>>::value(x[i]); });
}

template <class T>
void bias_gelu_forward(const ExecutionSpace& space, Matrix<T> out, Matrix<T> values, ConstVector<Compute<T>> bias) {
  const std::int64_t columns = extent(values, 1);
  require_shape(extent(bias, 0) == columns && extent(out, 1) == columns && out.extent(0) == values.extent(0) &&
                    (out.data() != values.data() || out.size() == 0),
                "bias_gelu_forward");
  for_rows(
      "minipipe::gelu::bias_forward", space, extent(values, 0), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        T* const v = row_pointer(values, row);
        T* const y = row_pointer(out, row);
        const Compute<T>* const b = bias.data();
        row_for(member, columns, [=](const std::int64_t c) {
          const Compute<T> x = as_stored<T>(v[c] + b[c]);
          v[c] = x;
          y[c] = Gelu<Compute<T>>::value(x);
        });
      });
}

template <class T>
void gelu_backward(const ExecutionSpace& space, Vector<T> input_gradient, ConstVector<T> output_gradient,
                   ConstVector<T> input) {
  require_shape(input_gradient.extent(0) == input.extent(0) && output_gradient.extent(0) == input.extent(0), "gelu_backward");
  T* dx = input_gradient.data();
  const T* dy = output_gradient.data();
  const T* x = input.data();
  for_elements(
      "minipipe::gelu::backward", space, extent(input, 0),
      KOKKOS_LAMBDA(const std::int64_t i) { dx[i] = dy[i] * Gelu<Compute<T>>::derivative(x[i]); });
}

#define MINIPIPE_INSTANTIATE(T)                                                                             \
  template void bias_gelu_forward<T>(const ExecutionSpace&, Matrix<T>, Matrix<T>, ConstVector<Compute<T>>); \
  template void gelu_forward<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>);                          \
  template void gelu_backward<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>, ConstVector<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
