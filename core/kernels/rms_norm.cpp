#include "core/kernels/rms_norm.hpp"

#include "core/kernels/column_sums.hpp"
#include "core/kernels/pack_loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// ---- host: `Rows` rows side by side, in packs -------------------------------------------------------------------------------

template <int Rows, class T>
void host_forward(std::int64_t columns, T* y, const T* x, Compute<T>* rstd, const Compute<T>* gamma, Compute<T> epsilon) {
  using C = Compute<T>;
  using V = Pack<C>;
  V squares[Rows] = {};
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    for (int q = 0; q < Rows; ++q) {
      prefetch_to_write(y + q * columns + c);
      const V value = lanes.load(x + q * columns + c);
      squares[q] = multiply_add(value, value, squares[q]);
    }
  });
  C r[Rows];
  for (int q = 0; q < Rows; ++q) r[q] = sum_of_lanes(squares[q]);
  for (int q = 0; q < Rows; ++q) r[q] = C(1) / square_root(r[q] / static_cast<C>(columns) + epsilon);
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    const V g = lanes.load(gamma + c);
    for (int q = 0; q < Rows; ++q) {
      prefetch_near(x + (q + Rows) * columns + c);
      lanes.store(y + q * columns + c, lanes.load(x + q * columns + c) * r[q] * g);
    }
  });
  for (int q = 0; q < Rows; ++q) rstd[q] = r[q];
}

template <int Rows, bool Accumulate, class T>
void host_backward_input(std::int64_t columns, T* dx, const T* dy, const T* x, const Compute<T>* rstd,
                         const Compute<T>* gamma) {
  using C = Compute<T>;
  using V = Pack<C>;
  V along[Rows] = {};
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    const V g = lanes.load(gamma + c);
    for (int q = 0; q < Rows; ++q) {
      along[q] = multiply_add(g * lanes.load(dy + q * columns + c), lanes.load(x + q * columns + c), along[q]);
    }
  });
  C along_x[Rows];
  for (int q = 0; q < Rows; ++q) along_x[q] = -(sum_of_lanes(along[q]) * rstd[q] / static_cast<C>(columns) * rstd[q]);
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    const V g = lanes.load(gamma + c);
    for (int q = 0; q < Rows; ++q) {
      T* const place = dx + q * columns + c;
      const V value =
          multiply_add(lanes.load(x + q * columns + c), lanes.all(along_x[q]), g * lanes.load(dy + q * columns + c));
      if constexpr (Accumulate) {
        lanes.store(place, multiply_add(lanes.all(rstd[q]), value, lanes.load(place)));
      } else {
        lanes.store(place, rstd[q] * value);
      }
    }
  });
}

template <class T>
struct ParameterTerm {
  const T *dy, *x;
  const Compute<T>* rstd;
  std::int64_t columns;

  template <class Lanes, class V>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t row, std::int64_t c, V (&sums)[1]) const {
    if constexpr (!std::is_same_v<Lanes, OneLane>) {
      prefetch_near(dy + (row + rows_ahead) * columns + c);
      prefetch_near(x + (row + rows_ahead) * columns + c);
    }
    const auto normal = lanes.load(x + row * columns + c) * rstd[row];
    sums[0] = multiply_add(lanes.load(dy + row * columns + c), normal, sums[0]);
  }
};

}  // namespace

template <class T>
void rms_norm_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> rstd, ConstMatrix<T> input,
                      ConstVector<Compute<T>> gamma, Compute<T> epsilon) {
  using C = Compute<T>;
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1);
  require_shape(extent(out, 0) == rows && extent(out, 1) == columns && extent(rstd, 0) == rows && extent(gamma, 0) == columns,
                "rms_norm_forward");
  if constexpr (on_host) {
    const auto run = [=](auto count, std::int64_t row) {
      host_forward<count.value, T>(columns, row_pointer(out, row), row_pointer(input, row), rstd.data() + row, gamma.data(),
                                   epsilon);
    };
    for_row_groups("minipipe::rms_norm::forward", space, rows, columns, run);
    return;
  }
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
  if constexpr (on_host) {
    const auto run = [=](auto accumulates) {
      for_row_groups<4>("minipipe::rms_norm::backward_input", space, rows, [=](auto count, std::int64_t row) {
        host_backward_input<count.value, accumulates.value, T>(columns, row_pointer(input_gradient, row),
                                                               row_pointer(output_gradient, row), row_pointer(input, row),
                                                               rstd.data() + row, gamma.data());
      });
    };
    if (accumulate) {
      run(std::true_type{});
    } else {
      run(std::false_type{});
    }
    return;
  }
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
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1);
  require_shape(extent(output_gradient, 0) == rows && extent(output_gradient, 1) == columns && extent(rstd, 0) == rows &&
                    extent(gamma_gradient, 0) == columns,
                "rms_norm_backward_parameters");
  add_column_sums<Compute<T>, 1>("minipipe::rms_norm::backward_parameters", space, rows, columns,
                                 ParameterTerm<T>{output_gradient.data(), input.data(), rstd.data(), columns},
                                 {gamma_gradient.data()});
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
