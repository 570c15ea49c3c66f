#include "core/kernels/layer_norm.hpp"

#include "core/kernels/column_sums.hpp"
#include "core/kernels/pack_loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// ---- host: rows in packs ----------------------------------------------------------------------------------------------------

// `Rows` short rows side by side.
template <int Rows, class T>
void host_forward_side_by_side(std::int64_t columns, T* y, const T* x, Compute<T>* mean, Compute<T>* rstd,
                               const Compute<T>* gamma, const Compute<T>* beta, Compute<T> epsilon) {
  using C = Compute<T>;
  using V = Pack<C>;
  const auto n = static_cast<C>(columns);
  V sums[Rows] = {}, squares[Rows] = {};
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    for (int q = 0; q < Rows; ++q) sums[q] += lanes.load(x + q * columns + c);
  });
  C m[Rows], r[Rows];
  for (int q = 0; q < Rows; ++q) m[q] = sum_of_lanes(sums[q]);
  for (int q = 0; q < Rows; ++q) m[q] /= n;
  // The sum of squared differences, not of squares: no cancellation when the mean is large.
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    for (int q = 0; q < Rows; ++q) {
      prefetch_to_write(y + q * columns + c);
      const V difference = lanes.or_else(lanes.load(x + q * columns + c) - m[q], V{});
      squares[q] = multiply_add(difference, difference, squares[q]);
    }
  });
  for (int q = 0; q < Rows; ++q) r[q] = sum_of_lanes(squares[q]);
  for (int q = 0; q < Rows; ++q) r[q] = C(1) / square_root(r[q] / n + epsilon);
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    const V g = lanes.load(gamma + c), b = lanes.load(beta + c);
    for (int q = 0; q < Rows; ++q) {
      prefetch_near(x + (q + Rows) * columns + c);
      lanes.store(y + q * columns + c, multiply_add((lanes.load(x + q * columns + c) - m[q]) * r[q], g, b));
    }
  });
  for (int q = 0; q < Rows; ++q) {
    mean[q] = m[q];
    rstd[q] = r[q];
  }
}

// Long rows one after the other. A row's mean must be known before its deviation, that before its output, and memory would wait
// for either sum: so while a row is written, the squares of the next and the sum of the one after that are formed.
template <class T>
void host_forward_in_turn(std::int64_t rows, std::int64_t columns, T* out, const T* input, Compute<T>* mean, Compute<T>* rstd,
                          const Compute<T>* gamma, const Compute<T>* beta, Compute<T> epsilon) {
  using C = Compute<T>;
  using V = Pack<C>;
  constexpr int few = 2;  // packs at a time; each has sums of its own, so that additions wait for each other half as long
  const auto n = static_cast<C>(columns);
  // After the last row there is the last row once more, in vain.
  const auto row_at = [=](std::int64_t row) { return input + (row < rows ? row : rows - 1) * columns; };
  V sums[few] = {}, squares[few] = {};
  C next_mean = 0;
  const auto add_to_sum = [&](const auto& lanes, int k, const T* place) { sums[k] += lanes.load(place); };
  const auto add_to_squares = [&](const auto& lanes, int k, const T* place) {
    const V difference = lanes.or_else(lanes.load(place) - next_mean, V{});
    squares[k] = multiply_add(difference, difference, squares[k]);
  };
  const auto take = [](V(&parts)[few]) {
    const C total = sum_of_lanes(parts[0] + parts[1]);
    parts[0] = parts[1] = V{};
    return total;
  };
  each_few_packs<C, few>(0, columns, [&](const auto& lanes, std::int64_t c, auto count) {
    each_of<count.value>([&](int k) { add_to_sum(lanes, k, row_at(0) + c + k * pack_size<C>); });
  });
  next_mean = take(sums) / n;
  each_few_packs<C, few>(0, columns, [&](const auto& lanes, std::int64_t c, auto count) {
    each_of<count.value>([&](int k) { add_to_squares(lanes, k, row_at(0) + c + k * pack_size<C>); });
    each_of<count.value>([&](int k) { add_to_sum(lanes, k, row_at(1) + c + k * pack_size<C>); });
  });
  for (std::int64_t row = 0; row < rows; ++row) {
    const C m = next_mean, r = C(1) / square_root(take(squares) / n + epsilon);
    next_mean = take(sums) / n;
    const T *const x = row_at(row), *const next = row_at(row + 1), *const after_next = row_at(row + 2);
    T* const y = out + row * columns;
    each_few_packs<C, few>(0, columns, [&](const auto& lanes, std::int64_t c, auto count) {
      V normal[count.value];
      each_of<count.value>([&](int k) {
        const T* const place = x + c + k * pack_size<C>;
        prefetch_near(place + 3 * columns);
        normal[k] = (lanes.load(place) - m) * r;
      });
      each_of<count.value>([&](int k) {
        const std::int64_t i = c + k * pack_size<C>;
        lanes.store(y + i, multiply_add(normal[k], lanes.load(gamma + i), lanes.load(beta + i)));
      });
      each_of<count.value>([&](int k) { add_to_squares(lanes, k, next + c + k * pack_size<C>); });
      each_of<count.value>([&](int k) { add_to_sum(lanes, k, after_next + c + k * pack_size<C>); });
    });
    mean[row] = m;
    rstd[row] = r;
  }
}

// `Rows` rows side by side.
template <int Rows, bool Accumulate, class T>
void host_backward_input(std::int64_t columns, T* dx, const T* dy, const T* x, const Compute<T>* mean, const Compute<T>* rstd,
                         const Compute<T>* gamma) {
  using C = Compute<T>;
  using V = Pack<C>;
  const auto n = static_cast<C>(columns);
  V ones[Rows] = {}, along[Rows] = {};
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    const V g = lanes.load(gamma + c);
    for (int q = 0; q < Rows; ++q) {
      // Beyond the row's end gamma is 0.
      const V gradient = g * lanes.load(dy + q * columns + c);
      ones[q] += gradient;
      along[q] = multiply_add(gradient, lanes.load(x + q * columns + c) - mean[q], along[q]);
    }
  });
  C along_one[Rows], along_x[Rows];  // the latter of (x - mean)
  for (int q = 0; q < Rows; ++q) {
    along_one[q] = sum_of_lanes(ones[q]) / n;
    along_x[q] = sum_of_lanes(along[q]) * rstd[q] / n * rstd[q];
  }
  each_pack<C>(0, columns, [&](const auto& lanes, std::int64_t c) {
    const V g = lanes.load(gamma + c);
    for (int q = 0; q < Rows; ++q) {
      T* const place = dx + q * columns + c;
      const V level = g * lanes.load(dy + q * columns + c) - along_one[q];
      const V value = multiply_add(mean[q] - lanes.load(x + q * columns + c), lanes.all(along_x[q]), level);
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
  const Compute<T>*mean, *rstd;
  std::int64_t columns;

  template <class Lanes, class V>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t row, std::int64_t c, V (&sums)[2]) const {
    if constexpr (!std::is_same_v<Lanes, OneLane>) {
      prefetch_near(dy + (row + rows_ahead) * columns + c);
      prefetch_near(x + (row + rows_ahead) * columns + c);
    }
    const auto gradient = lanes.load(dy + row * columns + c);
    const auto normal = (lanes.load(x + row * columns + c) - mean[row]) * rstd[row];
    sums[0] = multiply_add(gradient, normal, sums[0]);
    sums[1] += gradient;
  }
};

}  // namespace

template <class T>
void layer_norm_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> mean, Vector<Compute<T>> rstd,
                        ConstMatrix<T> input, ConstVector<Compute<T>> gamma, ConstVector<Compute<T>> beta, Compute<T> epsilon) {
  using C = Compute<T>;
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1);
  require_shape(extent(out, 0) == rows && extent(out, 1) == columns && extent(mean, 0) == rows && extent(rstd, 0) == rows &&
                    extent(gamma, 0) == columns && extent(beta, 0) == columns,
                "layer_norm_forward");
  if constexpr (on_host) {
    const char* const label = "minipipe::layer_norm::forward";
    if (columns <= short_row) {
      for_row_groups(label, space, rows, columns, [=](auto count, std::int64_t row) {
        host_forward_side_by_side<count.value, T>(columns, row_pointer(out, row), row_pointer(input, row), mean.data() + row,
                                                  rstd.data() + row, gamma.data(), beta.data(), epsilon);
      });
    } else {
      for_row_blocks(label, space, rows, [=](std::int64_t first, std::int64_t count) {
        host_forward_in_turn<T>(count, columns, row_pointer(out, first), row_pointer(input, first), mean.data() + first,
                                rstd.data() + first, gamma.data(), beta.data(), epsilon);
      });
    }
    return;
  }
  for_rows(
      "minipipe::layer_norm::forward", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const T* x = row_pointer(input, row);
        T* y = row_pointer(out, row);
        const C* g = gamma.data();
        const C* b = beta.data();
        const C m =
            row_sum<C>(member, columns, [=](const std::int64_t c) { return static_cast<C>(x[c]); }) / static_cast<C>(columns);
        // The sum of squared differences, not of squares: no cancellation when the mean is large.
        const C squares = row_sum<C>(member, columns, [=](const std::int64_t c) { return (x[c] - m) * (x[c] - m); });
        const C r = C(1) / square_root(squares / static_cast<C>(columns) + epsilon);
        row_for(member, columns, [=](const std::int64_t c) { y[c] = (x[c] - m) * r * g[c] + b[c]; });
        row_for(member, 1, [=](const std::int64_t) {
          mean(row) = m;
          rstd(row) = r;
        });
      });
}

template <class T>
void layer_norm_backward_input(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> output_gradient,
                               ConstMatrix<T> input, ConstVector<Compute<T>> mean, ConstVector<Compute<T>> rstd,
                               ConstVector<Compute<T>> gamma, bool accumulate) {
  using C = Compute<T>;
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1);
  require_shape(extent(input_gradient, 0) == rows && extent(input_gradient, 1) == columns &&
                    extent(output_gradient, 0) == rows && extent(output_gradient, 1) == columns && extent(mean, 0) == rows &&
                    extent(rstd, 0) == rows && extent(gamma, 0) == columns,
                "layer_norm_backward_input");
  if constexpr (on_host) {
    const auto run = [=](auto accumulates) {
      for_row_groups<4>("minipipe::layer_norm::backward_input", space, rows, [=](auto count, std::int64_t row) {
        host_backward_input<count.value, accumulates.value, T>(columns, row_pointer(input_gradient, row),
                                                               row_pointer(output_gradient, row), row_pointer(input, row),
                                                               mean.data() + row, rstd.data() + row, gamma.data());
      });
    };
    if (accumulate) {
      run(std::true_type{});
    } else {
      run(std::false_type{});
    }
    return;
  }
  // dx = rstd (gamma dy - mean(gamma dy) - xhat mean(gamma dy xhat))
  for_rows(
      "minipipe::layer_norm::backward_input", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const T* x = row_pointer(input, row);
        const T* dy = row_pointer(output_gradient, row);
        const C* g = gamma.data();
        T* dx = row_pointer(input_gradient, row);
        const C m = mean(row), r = rstd(row);
        const C along_one =
            row_sum<C>(member, columns, [=](const std::int64_t c) { return g[c] * dy[c]; }) / static_cast<C>(columns);
        const C along_x = row_sum<C>(member, columns, [=](const std::int64_t c) { return g[c] * dy[c] * ((x[c] - m) * r); }) /
                          static_cast<C>(columns);
        if (accumulate) {
          row_for(member, columns,
                  [=](const std::int64_t c) { dx[c] = dx[c] + r * (g[c] * dy[c] - along_one - (x[c] - m) * r * along_x); });
        } else {
          row_for(member, columns,
                  [=](const std::int64_t c) { dx[c] = r * (g[c] * dy[c] - along_one - (x[c] - m) * r * along_x); });
        }
      });
}

template <class T>
void layer_norm_backward_parameters(const ExecutionSpace& space, Vector<Compute<T>> gamma_gradient,
                                    Vector<Compute<T>> beta_gradient, ConstMatrix<T> output_gradient, ConstMatrix<T> input,
                                    ConstVector<Compute<T>> mean, ConstVector<Compute<T>> rstd) {
  const std::int64_t rows = extent(input, 0), columns = extent(input, 1);
  require_shape(extent(output_gradient, 0) == rows && extent(output_gradient, 1) == columns && extent(mean, 0) == rows &&
                    extent(rstd, 0) == rows && extent(gamma_gradient, 0) == columns && extent(beta_gradient, 0) == columns,
                "layer_norm_backward_parameters");
  add_column_sums<Compute<T>, 2>("minipipe::layer_norm::backward_parameters", space, rows, columns,
                                 ParameterTerm<T>{output_gradient.data(), input.data(), mean.data(), rstd.data(), columns},
                                 {gamma_gradient.data(), beta_gradient.data()});
}

#define MINIPIPE_INSTANTIATE(T)                                                                                                \
  template void layer_norm_forward<T>(const ExecutionSpace&, Matrix<T>, Vector<Compute<T>>, Vector<Compute<T>>,                \
                                      ConstMatrix<T>, ConstVector<Compute<T>>, ConstVector<Compute<T>>, Compute<T>);           \
  template void layer_norm_backward_input<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<T>, ConstMatrix<T>,                 \
                                             ConstVector<Compute<T>>, ConstVector<Compute<T>>, ConstVector<Compute<T>>, bool); \
  template void layer_norm_backward_parameters<T>(const ExecutionSpace&, Vector<Compute<T>>, Vector<Compute<T>>,               \
                                                  ConstMatrix<T>, ConstMatrix<T>, ConstVector<Compute<T>>,                     \
                                                  ConstVector<Compute<T>>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
