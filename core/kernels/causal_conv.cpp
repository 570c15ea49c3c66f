#include "core/kernels/causal_conv.hpp"

#include "core/kernels/column_sums.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// Rows that one unit of parallel work walks with the weights of its columns at hand.
constexpr std::int64_t row_block = 32;

// Weights and bias of a group of adjacent columns, turned so that the columns are contiguous.
template <class C>
struct ConvGroup {
  C weight[max_conv_width][column_group];
  C bias[column_group];
  int taps;

  template <class T>
  KOKKOS_INLINE_FUNCTION ConvGroup(const T* weights, const C* biases, int taps_, std::int64_t first, std::int64_t width)
      : taps(taps_) {
    for (std::int64_t j = 0; j < width; ++j) {
      bias[j] = biases[first + j];
      for (int k = 0; k < taps; ++k) {
        weight[k][j] = weights[(first + j) * taps + k];
      }
    }
  }
  // Adds the taps' products with this row and those `stride` elements apart from it, of which the sequence has `left`; `values`
  // points at the group's columns of this row.
  template <class T>
  KOKKOS_INLINE_FUNCTION void add_taps(C (&sums)[column_group], const T* values, std::int64_t stride, std::int64_t left,
                                       std::int64_t width) const {
    for (int distance = 0; distance < taps && distance <= left; ++distance) {
      const C* factors = weight[taps - 1 - distance];
      const T* row = values + distance * stride;
#pragma GCC ivdep
      for (std::int64_t j = 0; j < width; ++j) {
        sums[j] = multiply_add(factors[j], row[j], sums[j]);
      }
    }
  }
  // u of the row at position t of its sequence; `x` points at the group's columns of that row.
  template <class T>
  KOKKOS_INLINE_FUNCTION void convolve(C (&u)[column_group], const T* x, std::int64_t stride, std::int64_t t,
                                       std::int64_t width) const {
    for (std::int64_t j = 0; j < width; ++j) {
      u[j] = bias[j];
    }
    add_taps(u, x, -stride, t, width);
  }
};

// Rows begin .. end of a group of columns that the pointers point at. Full: all columns of a group, so that loops have a
// constant length and sums stay in registers.
struct ConvRows {
  std::int64_t begin, end, columns, stride, sequence, width;

  template <bool Full>
  KOKKOS_INLINE_FUNCTION std::int64_t length() const {
    return Full ? column_group : width;
  }
};

template <bool Full, class T, class C>
KOKKOS_INLINE_FUNCTION void forward_rows(const ConvRows& rows, const ConvGroup<C>& group, T* out, const T* x) {
  const std::int64_t width = rows.length<Full>();
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    C u[column_group] = {};
    group.convolve(u, x + row * rows.stride, rows.stride, row % rows.sequence, width);
    T* y = out + row * rows.columns;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < width; ++j) {
      y[j] = u[j] / (C(1) + exponential(-u[j]));
    }
  }
}

template <bool Full, class T, class C>
KOKKOS_INLINE_FUNCTION void silu_rows(const ConvRows& rows, const ConvGroup<C>& group, T* u_gradient, const T* output_gradient,
                                      const T* x) {
  const std::int64_t width = rows.length<Full>();
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    C u[column_group] = {};
    group.convolve(u, x + row * rows.stride, rows.stride, row % rows.sequence, width);
    const T* dy = output_gradient + row * rows.columns;
    T* du = u_gradient + row * rows.columns;
#pragma GCC ivdep
    for (std::int64_t j = 0; j < width; ++j) {
      const C sigmoid = C(1) / (C(1) + exponential(-u[j]));
      du[j] = dy[j] * sigmoid * (1 + u[j] * (1 - sigmoid));
    }
  }
}

// dx[t] = sum_k weight[k] du[t + K - 1 - k]; `stride` is that of x_gradient.
template <bool Full, class T, class C>
KOKKOS_INLINE_FUNCTION void backward_rows(const ConvRows& rows, const ConvGroup<C>& group, T* x_gradient, const T* u_gradient) {
  const std::int64_t width = rows.length<Full>();
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    C sums[column_group] = {};
    group.add_taps(sums, u_gradient + row * rows.columns, rows.columns, rows.sequence - 1 - row % rows.sequence, width);
    T* dx = x_gradient + row * rows.stride;
    for (std::int64_t j = 0; j < width; ++j) {
      dx[j] = sums[j];
    }
  }
}

// body(first_row, last_row, first_column, width): on a device, neighbouring threads have neighbouring columns.
template <class Body>
void for_blocks(const char* label, const ExecutionSpace& space, std::int64_t rows, std::int64_t columns, const Body& body) {
  const std::int64_t groups = (columns + column_group - 1) / column_group, blocks = (rows + row_block - 1) / row_block;
  Kokkos::parallel_for(
      label, RowRange(space, 0, blocks * groups), KOKKOS_LAMBDA(const std::int64_t unit) {
        const std::int64_t row = unit / groups * row_block, first = unit % groups * column_group;
        body(row, rows - row < row_block ? rows : row + row_block, first,
             columns - first < column_group ? columns - first : column_group);
      });
}

template <class X>
bool fits_conv(const X& x, std::int64_t columns, const ConvShape& shape) {
  return shape.sequence > 0 && x.rows == shape.batch * shape.sequence && x.columns == columns;
}

// A row's part of the gradients of weight[c, taps - 1 - back], by `back`, and behind them of the bias.
template <class T>
struct ConvTerm {
  using C = Compute<T>;
  const T *du, *x;
  std::int64_t columns, stride, sequence;
  int taps;

  KOKKOS_INLINE_FUNCTION void operator()(const OneLane&, std::int64_t row, std::int64_t c,
                                         C (&sums)[max_conv_width + 1]) const {
    const C gradient = du[row * columns + c];
    const auto t = static_cast<int>(static_cast<std::uint32_t>(row) % static_cast<std::uint32_t>(sequence));
    sums[max_conv_width] += gradient;
    MINIPIPE_UNROLL(8)
    for (int back = 0; back < max_conv_width; ++back) {
      if (back < taps && back <= t) sums[back] = multiply_add(gradient, C(x[(row - back) * stride + c]), sums[back]);
    }
  }
};

}  // namespace

template <class T>
void causal_conv_forward(const ExecutionSpace& space, Matrix<T> out, const Columns<const T>& x, ConstMatrix<T> weight,
                         ConstVector<Compute<T>> bias, const ConvShape& shape) {
  using C = Compute<T>;
  const std::int64_t rows = x.rows, columns = x.columns, sequence = shape.sequence, stride = x.stride;
  const int taps = static_cast<int>(extent(weight, 1));
  require_shape(fits_conv(x, extent(out, 1), shape) && extent(out, 0) == rows && extent(weight, 0) == columns &&
                    extent(bias, 0) == columns && taps > 0 && taps <= max_conv_width,
                "causal_conv_forward");
  const T* input = x.data;
  for_blocks(
      "minipipe::causal_conv::forward", space, rows, columns,
      KOKKOS_LAMBDA(const std::int64_t first_row, const std::int64_t last_row, const std::int64_t first,
                    const std::int64_t width) {
        const ConvGroup<C> group(weight.data(), bias.data(), taps, first, width);
        const ConvRows range{first_row, last_row, columns, stride, sequence, width};
        if (width == column_group) {
          forward_rows<true>(range, group, out.data() + first, input + first);
        } else {
          forward_rows<false>(range, group, out.data() + first, input + first);
        }
      });
}

template <class T>
void causal_conv_backward_input(const ExecutionSpace& space, const Columns<T>& x_gradient, Matrix<T> u_gradient,
                                ConstMatrix<T> output_gradient, const Columns<const T>& x, ConstMatrix<T> weight,
                                ConstVector<Compute<T>> bias, const ConvShape& shape) {
  using C = Compute<T>;
  const std::int64_t rows = x.rows, columns = x.columns, sequence = shape.sequence, stride = x.stride;
  const int taps = static_cast<int>(extent(weight, 1));
  require_shape(fits_conv(x, extent(u_gradient, 1), shape) && fits_conv(x_gradient, columns, shape) &&
                    extent(u_gradient, 0) == rows && extent(output_gradient, 0) == rows &&
                    extent(output_gradient, 1) == columns && extent(weight, 0) == columns && extent(bias, 0) == columns &&
                    taps > 0 && taps <= max_conv_width,
                "causal_conv_backward_input");
  const T* input = x.data;
  for_blocks(
      "minipipe::causal_conv::backward_silu", space, rows, columns,
      KOKKOS_LAMBDA(const std::int64_t first_row, const std::int64_t last_row, const std::int64_t first,
                    const std::int64_t width) {
        const ConvGroup<C> group(weight.data(), bias.data(), taps, first, width);
        const ConvRows range{first_row, last_row, columns, stride, sequence, width};
        T* du = u_gradient.data() + first;
        const T* dy = output_gradient.data() + first;
        if (width == column_group) {
          silu_rows<true>(range, group, du, dy, input + first);
        } else {
          silu_rows<false>(range, group, du, dy, input + first);
        }
      });
  T* input_gradient = x_gradient.data;
  const std::int64_t gradient_stride = x_gradient.stride;
  for_blocks(
      "minipipe::causal_conv::backward_input", space, rows, columns,
      KOKKOS_LAMBDA(const std::int64_t first_row, const std::int64_t last_row, const std::int64_t first,
                    const std::int64_t width) {
        const ConvGroup<C> group(weight.data(), bias.data(), taps, first, width);
        const ConvRows range{first_row, last_row, columns, gradient_stride, sequence, width};
        if (width == column_group) {
          backward_rows<true>(range, group, input_gradient + first, u_gradient.data() + first);
        } else {
          backward_rows<false>(range, group, input_gradient + first, u_gradient.data() + first);
        }
      });
}

template <class T>
void causal_conv_backward_parameters(const ExecutionSpace& space, Matrix<Compute<T>> weight_gradient,
                                     Vector<Compute<T>> bias_gradient, ConstMatrix<T> u_gradient, const Columns<const T>& x,
                                     const ConvShape& shape) {
  using C = Compute<T>;
  const std::int64_t columns = x.columns, sequence = shape.sequence, batch = shape.batch, stride = x.stride;
  const int taps = static_cast<int>(extent(weight_gradient, 1));
  require_shape(fits_conv(x, extent(u_gradient, 1), shape) && extent(u_gradient, 0) == x.rows &&
                    extent(weight_gradient, 0) == columns && extent(bias_gradient, 0) == columns && taps > 0 &&
                    taps <= max_conv_width,
                "causal_conv_backward_parameters");
  const T* input = x.data;
  const char* const label = "minipipe::causal_conv::backward_parameters";
  if constexpr (on_host) {
    for_column_groups(label, space, columns, [=](const std::int64_t first, const std::int64_t width) {
      C sums[column_group];
      for (std::int64_t b = 0; b < batch; ++b) {
        const T* du = u_gradient.data() + b * sequence * columns + first;
        const T* values = input + b * sequence * stride + first;
        sum_rows(sums, sequence, width, [=](const std::int64_t t, const std::int64_t j) { return du[t * columns + j]; });
        for (std::int64_t j = 0; j < width; ++j) {
          bias_gradient(first + j) += sums[j];
        }
        for (int k = 0; k < taps; ++k) {
          const std::int64_t back = taps - 1 - k;
          sum_rows(sums, sequence - back, width, [=](const std::int64_t t, const std::int64_t j) {
            return du[(t + back) * columns + j] * values[t * stride + j];
          });
          for (std::int64_t j = 0; j < width; ++j) {
            weight_gradient((first + j), k) += sums[j];
          }
        }
      }
    });
  } else {
    sum_columns_on_device<C, max_conv_width + 1>(
        label, space, x.rows, columns, ConvTerm<T>{u_gradient.data(), input, columns, stride, sequence, taps},
        KOKKOS_LAMBDA(const std::int64_t c, const C* sums) {
          for (int back = 0; back < taps; ++back) weight_gradient(c, taps - 1 - back) += sums[back];
          bias_gradient(c) += sums[max_conv_width];
        });
  }
}

#define MINIPIPE_INSTANTIATE(T)                                                                                    \
  template void causal_conv_forward<T>(const ExecutionSpace&, Matrix<T>, const Columns<const T>&, ConstMatrix<T>,  \
                                       ConstVector<Compute<T>>, const ConvShape&);                                 \
  template void causal_conv_backward_input<T>(const ExecutionSpace&, const Columns<T>&, Matrix<T>, ConstMatrix<T>, \
                                              const Columns<const T>&, ConstMatrix<T>, ConstVector<Compute<T>>,    \
                                              const ConvShape&);                                                   \
  template void causal_conv_backward_parameters<T>(const ExecutionSpace&, Matrix<Compute<T>>, Vector<Compute<T>>,  \
                                                   ConstMatrix<T>, const Columns<const T>&, const ConvShape&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
