#include "core/kernels/rms_norm.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

template <class T>
void rms_norm_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> rstd, ConstMatrix<T> input,
                      ConstVector<Compute<T>> gamma, Compute<T> epsilon) {
  using C = Compute<T>;
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1);
  require_shape(extent(out, 0) == rows && extent(out, 1) == columns && extent(rstd, 0) == rows && extent(gamma, 0) == columns,
                "rms_norm_forward");
  for_rows(
      "minipipe::rms_norm::forward", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const T* x = row_pointer(input, row);
        T* y = row_pointer(out, row);
        const C* g = gamma.data();
        const C squares = row_sum<C>(member, columns, [=](const std::int64_t c) { return x[c] * x[c]; });
        const C r = C(1) / square_root(squares / static_cast<C>(columns) + epsilon);
        row_for(member, columns, [=](const std::int64_t c) { y[c] = x[c] * r * g[c]; });
        row_for(member, 1, [=](const std::int64_t) { rstd(row) = r; });
      });
}

template <class T>
void rms_norm_backward_input(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> output_gradient,
                             ConstMatrix<T> input, ConstVector<Compute<T>> rstd, ConstVector<Compute<T>> gamma,
                             bool accumulate) {
  using C = Compute<T>;
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1);
  require_shape(extent(input_gradient, 0) == rows && extent(input_gradient, 1) == columns &&
                    extent(output_gradient, 0) == rows && extent(output_gradient, 1) == columns && extent(rstd, 0) == rows &&
                    extent(gamma, 0) == columns,
                "rms_norm_backward_input");
  // dx = rstd (gamma dy - xhat mean(gamma dy xhat)), xhat = x rstd
  for_rows(
      "minipipe::rms_norm::backward_input", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const T* x = row_pointer(input, row);
        const T* dy = row_pointer(output_gradient, row);
        const C* g = gamma.data();
        T* dx = row_pointer(input_gradient, row);
        const C r = rstd(row);
        const C along_x = row_sum<C>(member, columns, [=](const std::int64_t c) { return g[c] * dy[c] * (x[c] * r); }) /
                          static_cast<C>(columns);
        if (accumulate) {
          row_for(member, columns, [=](const std::int64_t c) { dx[c] = dx[c] + r * (g[c] * dy[c] - x[c] * r * along_x); });
        } else {
          row_for(member, columns, [=](const std::int64_t c) { dx[c] = r * (g[c] * dy[c] - x[c] * r * along_x); });
        }
      });
}

template <class T>
void rms_norm_backward_parameters(const ExecutionSpace& space, Vector<Compute<T>> gamma_gradient,
                                  ConstMatrix<T> output_gradient, ConstMatrix<T> input, ConstVector<Compute<T>> rstd) {
  using C = Compute<T>;
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1);
  require_shape(extent(output_gradient, 0) == rows && extent(output_gradient, 1) == columns && extent(rstd, 0) == rows &&
                    extent(gamma_gradient, 0) == columns,
                "rms_norm_backward_parameters");
  for_column_groups(
      "minipipe::rms_norm::backward_parameters", space, columns,
      KOKKOS_LAMBDA(const std::int64_t first, const std::int64_t width) {
        const T* x = input.data() + first;
        const T* dy = output_gradient.data() + first;
        C sums[column_group];
        sum_rows(sums, rows, width, [=](const std::int64_t row, const std::int64_t j) {
          return dy[row * columns + j] * (x[row * columns + j] * rstd(row));
        });
        for (std::int64_t j = 0; j < width; ++j) {
          gamma_gradient(first + j) += sums[j];
        }
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                            \
  template void rms_norm_forward<T>(const ExecutionSpace&, Matrix<T>, Vector<Compute<T>>, ConstMatrix<T>,                  \
                                    ConstVector<Compute<T>>, Compute<T>);                                                  \
  template void rms_norm_backward_input<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, ConstMatrix<T>,               \
                                           ConstVector<Compute<T>>, ConstVector<Compute<T>>, bool);                        \
  template void rms_norm_backward_parameters<T>(const ExecutionSpace&, Vector<Compute<T>>, ConstMatrix<T>, ConstMatrix<T>, \
                                                ConstVector<Compute<T>>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
