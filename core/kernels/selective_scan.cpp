#include "core/kernels/selective_scan_common.hpp"

// Why the plain recurrence over time, and neither a parallel scan nor the product form of the paper:
//  - Kokkos::parallel_scan over time splits its range by the number of threads, so the rounding would depend on it; it also
//    walks the sequence twice with S x P states as values. Sequences, heads and features are independent already and fill the
//    cores: time is the one direction that need not be parallel.
//  - The product form does Q (S + P) + 4 S P operations per position and head for chunks of Q, the recurrence 5 S P: for
//    Q = S = P = 64 these are 24k and 20k. It pays where products run on special units; here both run on the same ones.
namespace minipipe::core {

namespace {

// Features of a head that one thread of the forward takes through time: on the host a few vectors of them, held in registers.
inline constexpr int scan_lanes = on_host ? 32 : 1;

// The part of an array from (row, column) on.
template <class T>
KOKKOS_INLINE_FUNCTION Columns<T> shifted(const Columns<T>& from, std::int64_t row, std::int64_t column) {
  return {from.data + row * from.stride + column, from.rows - row, from.columns - column, from.stride};
}

// One sequence, one head, `width` features from the first that x, out and state point at; Full: width is scan_lanes.
template <bool Full, class T, class C = Compute<T>>
KOKKOS_INLINE_FUNCTION void scan_features(const ScanShape& z, T* out, C* state, const ScanInputs<const T>& in, C a, C d,
                                          C dt_bias, int width_) {
  const int width = Full ? scan_lanes : width_;
  const std::int64_t row = z.head_size, size = z.state * row, columns = z.heads * z.head_size;
  for (std::int64_t s = 0; s < z.state; ++s) {
    for (int j = 0; j < width; ++j) {
      state[s * row + j] = 0;
    }
  }
  for (std::int64_t t = 0; t < z.sequence; ++t) {
    // The running state lives where it will be kept: the first step of a chunk takes it from one place to the next.
    const C* from = state;
    if (t > 0 && t % scan_chunk == 0) {
      state += size;
    }
    const C step = softplus(in.dt.data[t * in.dt.stride] + dt_bias);
    const C decay = exponential(step * a);
    C input[scan_lanes], sum[scan_lanes];
    for (int j = 0; j < width; ++j) {
      input[j] = in.x.data[t * in.x.stride + j];
      sum[j] = d * input[j];
    }
    for (std::int64_t s = 0; s < z.state; ++s) {
      const C factor = step * in.b.data[t * in.b.stride + s], read = in.c.data[t * in.c.stride + s];
      const C* old = from + s * row;
      C* next = state + s * row;
#pragma GCC ivdep
      for (int j = 0; j < width; ++j) {
        const C value = multiply_add(factor, input[j], decay * old[j]);
        next[j] = value;
        sum[j] = multiply_add(read, value, sum[j]);
      }
    }
    for (int j = 0; j < width; ++j) {
      out[t * columns + j] = sum[j];
    }
  }
}

}  // namespace

std::int64_t scan_states(const ScanShape& z) { return z.batch * z.heads * chunks_of(z) * z.state * z.head_size; }
std::int64_t scan_sums(const ScanShape& z) { return 3 * z.batch * z.heads; }

template <class T>
void selective_scan_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> states,
                            const ScanInputs<const T>& inputs, const ScanParameters<const Compute<T>>& parameters,
                            const ScanShape& shape) {
  using C = Compute<T>;
  require_shape(fits_scan(inputs, parameters, shape) && extent(out, 0) == inputs.x.rows && extent(out, 1) == inputs.x.columns &&
                    extent(states, 0) >= scan_states(shape),
                "selective_scan_forward");
  const ScanShape z = shape;
  const ScanInputs<const T> in = inputs;
  const ConstVector<C> a_log = parameters.a_log, d = parameters.d, dt_bias = parameters.dt_bias;
  const std::int64_t parts = (z.head_size + scan_lanes - 1) / scan_lanes, chunks = chunks_of(z);
  Kokkos::parallel_for(
      "minipipe::selective_scan::forward", RowRange(space, 0, z.batch * z.heads * parts),
      KOKKOS_LAMBDA(const std::int64_t unit) {
        const std::int64_t first = unit % parts * scan_lanes, sequence = unit / parts / z.heads, h = unit / parts % z.heads;
        const std::int64_t row = sequence * z.sequence, column = h * z.head_size + first;
        const std::int64_t group = h / (z.heads / z.groups) * z.state;
        const C a = -exponential(a_log(h));
        const int width = z.head_size - first < scan_lanes ? static_cast<int>(z.head_size - first) : scan_lanes;
        T* y = out.data() + row * z.heads * z.head_size + column;
        C* state = states.data() + (sequence * z.heads + h) * chunks * z.state * z.head_size + first;
        const ScanInputs<const T> part{shifted(in.x, row, column), shifted(in.dt, row, h), shifted(in.b, row, group),
                                       shifted(in.c, row, group)};
        if (width == scan_lanes) {
          scan_features<true>(z, y, state, part, a, d(h), dt_bias(h), width);
        } else {
          scan_features<false>(z, y, state, part, a, d(h), dt_bias(h), width);
        }
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                             \
  template void selective_scan_forward<T>(const ExecutionSpace&, Matrix<T>, Vector<Compute<T>>, const ScanInputs<const T>&, \
                                          const ScanParameters<const Compute<T>>&, const ScanShape&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
