#include "core/kernels/selective_scan_common.hpp"

namespace minipipe::core {

namespace {

inline constexpr int scan_vector = on_host ? 1 : 32;
inline constexpr int scan_team = on_host ? 1 : 8;
inline constexpr int scratch_level = on_host ? 0 : 1;

// body(p) for p < count, spread over the vector lanes of one thread.
template <class Body>
KOKKOS_INLINE_FUNCTION void lanes_for(const TeamMember& team, std::int64_t count, const Body& body) {
  if constexpr (on_host) {
    row_for(HostMember{}, count, body);
  } else {
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, count), body);
  }
}

template <class T, class Term>
KOKKOS_INLINE_FUNCTION T lanes_sum(const TeamMember& team, std::int64_t count, const Term& term) {
  if constexpr (on_host) {
    return row_sum<T>(HostMember{}, count, term);
  } else {
    T total = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, count), [&](const std::int64_t i, T& partial) { partial += term(i); }, total);
    return total;
  }
}

// One row of the state's gradient, one position back: g <- read dy + carry g, then its products with x and with the state
// before, and that of the state after with dy. Also adds factor g to x_sum on the host; a device, whose threads have different
// rows, puts it in the place of `after`, which is not needed any more, for a sum over the rows later.
template <class T>
struct RowStep {
  using C = Compute<T>;
  C *g, *after, *x_sum;
  const C* before;
  const T *x, *dy;
  C read, carry, factor;
  C gx = 0, hy = 0, gh = 0;  // results

  KOKKOS_INLINE_FUNCTION void run(const TeamMember& team, std::int64_t count) {
    if constexpr (on_host) {
      // The three sums in one pass, in as many parts as row_sum has.
      C parts[3][sum_lanes] = {};
      const std::int64_t whole = count - count % sum_lanes;
      for (std::int64_t first = 0; first < whole; first += sum_lanes) {
        advance(parts, first, sum_lanes);
      }
      advance(parts, whole, static_cast<int>(count - whole));
      for (int half = sum_lanes / 2; half > 0; half /= 2) {
        for (auto& part : parts) {
          for (int l = 0; l < half; ++l) {
            part[l] += part[l + half];
          }
        }
      }
      gx = parts[0][0];
      hy = parts[1][0];
      gh = parts[2][0];
    } else {
      const RowStep& r = *this;
      lanes_for(team, count, [=](const std::int64_t p) { r.g[p] = multiply_add(r.read, r.dy[p], r.carry * r.g[p]); });
      gx = lanes_sum<C>(team, count, [=](const std::int64_t p) { return r.g[p] * r.x[p]; });
      hy = lanes_sum<C>(team, count, [=](const std::int64_t p) { return r.after[p] * r.dy[p]; });
      gh = lanes_sum<C>(team, count, [=](const std::int64_t p) { return r.g[p] * r.before[p]; });
      lanes_for(team, count, [=](const std::int64_t p) { r.after[p] = r.factor * r.g[p]; });
    }
  }
  KOKKOS_INLINE_FUNCTION void advance(C (&parts)[3][sum_lanes], std::int64_t first, int width) const {
#pragma GCC ivdep
    for (int l = 0; l < width; ++l) {
      const std::int64_t p = first + l;
      const C value = multiply_add(read, dy[p], carry * g[p]);
      g[p] = value;
      parts[0][l] = multiply_add(value, x[p], parts[0][l]);
      parts[1][l] = multiply_add(after[p], dy[p], parts[1][l]);
      parts[2][l] = multiply_add(value, before[p], parts[2][l]);
      x_sum[p] = multiply_add(factor, value, x_sum[p]);
    }
  }
};

// Scratch of one (sequence, head) of the backward. A row is the part of the state that belongs to one of its S components.
// `history` holds a row's states before and within the chunk; the host goes through rows one by one and needs that of one row.
template <class T>
struct BackwardScratch {
  T *history, *gradient, *x_sums, *step, *decay, *sigmoid, *gx, *gh, *terms, *totals;

  static constexpr std::int64_t row_history = scan_chunk + 1;
  KOKKOS_INLINE_FUNCTION static std::int64_t elements(std::int64_t state, std::int64_t head_size) {
    return (on_host ? 1 : state) * row_history * head_size + state * head_size + (on_host ? scan_chunk * head_size : 0) +
           3 * scan_chunk + 2 * state * scan_chunk + 3 * scan_chunk + 3;
  }
  KOKKOS_INLINE_FUNCTION BackwardScratch(T* memory, std::int64_t state, std::int64_t head_size) {
    history = memory;
    gradient = history + (on_host ? 1 : state) * row_history * head_size;
    x_sums = gradient + state * head_size;
    step = x_sums + (on_host ? scan_chunk * head_size : 0);
    decay = step + scan_chunk;
    sigmoid = decay + scan_chunk;
    gx = sigmoid + scan_chunk;
    gh = gx + state * scan_chunk;
    terms = gh + state * scan_chunk;  // of a, d and dt_bias, by position of the chunk
    totals = terms + 3 * scan_chunk;
  }
};

}  // namespace

template <class T>
void selective_scan_backward_input(const ExecutionSpace& space, const ScanInputs<T>& gradients, Vector<Compute<T>> sums,
                                   ConstMatrix<T> output_gradient, const ScanInputs<const T>& inputs,
                                   const ScanParameters<const Compute<T>>& parameters, ConstVector<Compute<T>> states,
                                   Vector<Compute<T>> workspace, const ScanShape& shape) {
  using C = Compute<T>;
  require_shape(fits_scan(inputs, parameters, shape) && fits_scan(gradients, parameters, shape) &&
                    extent(output_gradient, 0) == inputs.x.rows && extent(output_gradient, 1) == inputs.x.columns &&
                    extent(states, 0) >= scan_states(shape) && extent(workspace, 0) >= scan_workspace(shape) &&
                    extent(sums, 0) >= scan_sums(shape),
                "selective_scan_backward_input");
  const ScanShape z = shape;
  const ScanInputs<const T> in = inputs;
  const ScanInputs<T> out = gradients;
  const ConstVector<C> a_log = parameters.a_log, d = parameters.d, dt_bias = parameters.dt_bias;
  const std::int64_t chunks = chunks_of(z), by_head = z.heads * z.state;
  C* b_by_head = workspace.data();  // [B*T, H, S]
  C* c_by_head = b_by_head + z.batch * z.sequence * by_head;
  const auto scratch_bytes = static_cast<int>(BackwardScratch<C>::elements(z.state, z.head_size) * sizeof(C));
  TeamPolicy policy(space, static_cast<int>(z.batch * z.heads), scan_team, scan_vector);
  const int level = scratch_level;
  policy.set_scratch_size(level, Kokkos::PerTeam(scratch_bytes));
  // With g the gradient of the state, g_t = C_t dy_t^T + decay_{t+1} g_{t+1}: dC = h dy, dB = dt g x, dx = dt g^T B + D dy,
  // d dt = B^T g x + A decay <g_t, h_{t-1}>, dA = sum_t dt decay <g_t, h_{t-1}>.
  Kokkos::parallel_for(
      "minipipe::selective_scan::backward_input", policy, KOKKOS_LAMBDA(const TeamMember& team) {
        const BackwardScratch<C> k(static_cast<C*>(team.team_scratch(level).get_shmem(scratch_bytes)), z.state, z.head_size);
        const std::int64_t unit = team.league_rank(), sequence = unit / z.heads, h = unit % z.heads;
        const std::int64_t features = z.head_size, size = z.state * features, width = z.heads * features;
        const std::int64_t group = h / (z.heads / z.groups) * z.state;
        const C* kept = states.data() + unit * chunks * size;
        const C a = -exponential(a_log(h));
        C next_decay = 0;  // of the first position behind the chunk
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, z.state), [&](const std::int64_t s) {
          lanes_for(team, features, [=](const std::int64_t p) { k.gradient[s * features + p] = 0; });
        });
        Kokkos::single(Kokkos::PerTeam(team), [&]() { k.totals[0] = k.totals[1] = k.totals[2] = 0; });
        for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
          const std::int64_t first = sequence * z.sequence + chunk * scan_chunk;  // row
          const std::int64_t left = z.sequence - chunk * scan_chunk, count = left < scan_chunk ? left : scan_chunk;
          const T* x = in.x.data + first * in.x.stride + h * features;
          const T* dy = output_gradient.data() + first * width + h * features;
          const T* b = in.b.data + first * in.b.stride + group;
          const T* c = in.c.data + first * in.c.stride + group;
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](const std::int64_t t) {
            const C raw = in.dt.data[(first + t) * in.dt.stride + h] + dt_bias(h);
            const C step = softplus(raw);
            Kokkos::single(Kokkos::PerThread(team), [&]() {
              k.step[t] = step;
              k.decay[t] = exponential(step * a);
              k.sigmoid[t] = C(1) / (C(1) + exponential(-raw));
            });
            if constexpr (on_host) {
              lanes_for(team, features, [=](const std::int64_t p) { k.x_sums[t * features + p] = 0; });
            }
          });
          team.team_barrier();
          // Rows of the state do not meet: each is taken forward and back through the chunk on its own.
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, z.state), [&](const std::int64_t s) {
            C* history = k.history + (on_host ? 0 : s) * BackwardScratch<C>::row_history * features;
            C* g = k.gradient + s * features;
            const C* start = kept + (chunk - 1) * size + s * features;
            if (chunk > 0) {
              lanes_for(team, features, [=](const std::int64_t p) { history[p] = start[p]; });
            } else {
              lanes_for(team, features, [=](const std::int64_t p) { history[p] = 0; });
            }
            for (std::int64_t t = 0; t < count; ++t) {
              const C factor = k.step[t] * b[t * in.b.stride + s], decay = k.decay[t];
              const C* old = history + t * features;
              C* next = history + (t + 1) * features;
              const T* input = x + t * in.x.stride;
              lanes_for(team, features,
                        [=](const std::int64_t p) { next[p] = multiply_add(factor, input[p], decay * old[p]); });
            }
            for (std::int64_t t = count - 1; t >= 0; --t) {
              const C b_s = b[t * in.b.stride + s];
              RowStep<T> step{.g = g,
                              .after = history + (t + 1) * features,
                              .x_sum = k.x_sums + t * features,
                              .before = history + t * features,
                              .x = x + t * in.x.stride,
                              .dy = dy + t * width,
                              .read = c[t * in.c.stride + s],
                              .carry = t + 1 < count ? k.decay[t + 1] : next_decay,
                              .factor = k.step[t] * b_s};
              step.run(team, features);
              Kokkos::single(Kokkos::PerThread(team), [&]() {
                b_by_head[(first + t) * by_head + h * z.state + s] = k.step[t] * step.gx;
                c_by_head[(first + t) * by_head + h * z.state + s] = step.hy;
                k.gx[s * scan_chunk + t] = b_s * step.gx;
                k.gh[s * scan_chunk + t] = step.gh;
              });
            }
          });
          team.team_barrier();
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](const std::int64_t t) {
            const T* input = x + t * in.x.stride;
            const T* gradient = dy + t * width;
            T* dx = out.x.data + (first + t) * out.x.stride + h * features;
            const C skip = d(h);
            const C xy = lanes_sum<C>(team, features, [=](const std::int64_t p) { return input[p] * gradient[p]; });
            if constexpr (on_host) {
              const C* sum = k.x_sums + t * features;
              lanes_for(team, features, [=](const std::int64_t p) { dx[p] = multiply_add(skip, gradient[p], sum[p]); });
            } else {
              lanes_for(team, features, [=](const std::int64_t p) {
                C sum = skip * gradient[p];
                for (std::int64_t s = 0; s < z.state; ++s) {
                  sum += k.history[(s * BackwardScratch<C>::row_history + t + 1) * features + p];
                }
                dx[p] = sum;
              });
            }
            Kokkos::single(Kokkos::PerThread(team), [&]() {
              C gx = 0, gh = 0;
              for (std::int64_t s = 0; s < z.state; ++s) {
                gx += k.gx[s * scan_chunk + t];
                gh += k.gh[s * scan_chunk + t];
              }
              gh *= k.decay[t];
              const C raw_gradient = (gx + a * gh) * k.sigmoid[t];
              out.dt.data[(first + t) * out.dt.stride + h] = raw_gradient;
              k.terms[3 * t] = k.step[t] * gh * a;  // dA / d a_log = A
              k.terms[3 * t + 1] = xy;
              k.terms[3 * t + 2] = raw_gradient;
            });
          });
          team.team_barrier();
          next_decay = k.decay[0];
          Kokkos::single(Kokkos::PerTeam(team), [&]() {
            for (int i = 0; i < 3; ++i) {
              C sum = 0;
              for (std::int64_t t = 0; t < count; ++t) {
                sum += k.terms[3 * t + i];
              }
              k.totals[i] += sum;
              sums(3 * unit + i) = k.totals[i];
            }
          });
          team.team_barrier();
        }
      });
  const std::int64_t share = z.heads / z.groups;
  for_rows(
      "minipipe::selective_scan::backward_groups", space, z.batch * z.sequence,
      KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const C* from_b = b_by_head + row * by_head;
        const C* from_c = c_by_head + row * by_head;
        T* db = out.b.data + row * out.b.stride;
        T* dc = out.c.data + row * out.c.stride;
        row_for(member, z.groups * z.state, [=](const std::int64_t i) {
          const std::int64_t first = i / z.state * share * z.state + i % z.state;
          C sum_b = 0, sum_c = 0;
          for (std::int64_t head = 0; head < share; ++head) {
            sum_b += from_b[first + head * z.state];
            sum_c += from_c[first + head * z.state];
          }
          db[i] = sum_b;
          dc[i] = sum_c;
        });
      });
}

template <class T>
void selective_scan_backward_parameters(const ExecutionSpace& space, const ScanParameters<T>& gradients, ConstVector<T> sums,
                                        const ScanShape& shape) {
  const std::int64_t batch = shape.batch, heads = shape.heads;
  const Vector<T> a_log = gradients.a_log, d = gradients.d, dt_bias = gradients.dt_bias;
  require_shape(
      extent(a_log, 0) == heads && extent(d, 0) == heads && extent(dt_bias, 0) == heads && extent(sums, 0) >= scan_sums(shape),
      "selective_scan_backward_parameters");
  Kokkos::parallel_for(
      "minipipe::selective_scan::backward_parameters", RowRange(space, 0, heads), KOKKOS_LAMBDA(const std::int64_t h) {
        T total[3] = {};
        for (std::int64_t b = 0; b < batch; ++b) {
          for (int i = 0; i < 3; ++i) {
            total[i] += sums((b * heads + h) * 3 + i);
          }
        }
        a_log(h) += total[0];
        d(h) += total[1];
        dt_bias(h) += total[2];
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                    \
  template void selective_scan_backward_input<T>(                                                                  \
      const ExecutionSpace&, const ScanInputs<T>&, Vector<Compute<T>>, ConstMatrix<T>, const ScanInputs<const T>&, \
      const ScanParameters<const Compute<T>>&, ConstVector<Compute<T>>, Vector<Compute<T>>, const ScanShape&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
template void selective_scan_backward_parameters<float>(const ExecutionSpace&, const ScanParameters<float>&, ConstVector<float>,
                                                        const ScanShape&);
template void selective_scan_backward_parameters<double>(const ExecutionSpace&, const ScanParameters<double>&,
                                                         ConstVector<double>, const ScanShape&);

}  // namespace minipipe::core
