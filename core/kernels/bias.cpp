#include "core/kernels/bias.hpp"

#include "core/kernels/column_sums.hpp"
#include "core/kernels/pack_loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

template <class T>
struct GradientTerm {
  const T* dy;
  std::int64_t columns;

  template <class Lanes, class V>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t row, std::int64_t c, V (&sums)[1]) const {
    if constexpr (!std::is_same_v<Lanes, OneLane>) {
      prefetch_near(dy + (row + rows_ahead) * columns + c);
    }
    sums[0] += lanes.load(dy + row * columns + c);
  }
};

}  // namespace

template <class T>
void bias_add(const ExecutionSpace& space, Matrix<T> values, ConstVector<Compute<T>> bias) {
  const std::int64_t columns = extent(values, 1);
  require_shape(extent(bias, 0) == columns, "bias_add");
  for_rows(
      "minipipe::bias::add", space, extent(values, 0), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        T* v = row_pointer(values, row);
        const Compute<T>* b = bias.data();
        row_for(member, columns, [=](const std::int64_t c) { v[c] = v[c] + b[c]; });
      });
}

template <class T>
void bias_gradient(const ExecutionSpace& space, Vector<Compute<T>> gradient, ConstMatrix<T> output_gradient) {
  const std::int64_t rows = extent(output_gradient, 0), columns = extent(output_gradient, 1);
  require_shape(extent(gradient, 0) == columns, "bias_gradient");
  add_column_sums<Compute<T>, 1>("minipipe::bias::gradient", space, rows, columns,
                                 GradientTerm<T>{output_gradient.data(), columns}, {gradient.data()});
}

#define MINIPIPE_INSTANTIATE(T)                                                         \
  template void bias_add<T>(const ExecutionSpace&, Matrix<T>, ConstVector<Compute<T>>); \
  template void bias_gradient<T>(const ExecutionSpace&, Vector<Compute<T>>, ConstMatrix<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
