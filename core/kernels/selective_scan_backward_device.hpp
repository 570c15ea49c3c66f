#pragma once

#include "core/kernels/selective_scan_common.hpp"

namespace minipipe::core {

inline constexpr int scan_vector = 32;
inline constexpr int scan_team = 8;
// Teams at a time, each of which has scratch in memory: about as many as a GPU has room for, two on a multiprocessor.
inline constexpr std::int64_t most_scan_teams = 300;

// body(p) for p < count, spread over the vector lanes of one thread.
template <class Body>
KOKKOS_INLINE_FUNCTION void lanes_for(const TeamMember& team, std::int64_t count, const Body& body) {
  Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, count), body);
}

template <class T, class Term>
KOKKOS_INLINE_FUNCTION T lanes_sum(const TeamMember& team, std::int64_t count, const Term& term) {
  T total = 0;
  Kokkos::parallel_reduce(
      Kokkos::ThreadVectorRange(team, count), [&](const std::int64_t i, T& partial) { partial += term(i); }, total);
  return total;
}

// One row of the state's gradient, one position back: g <- read dy + carry g, then its products with x and with the state
// before, and that of the state after with dy. factor g is added to dx, or written there by the `first` row.
template <class T>
struct RowStep {
  using C = Compute<T>;
  C *g, *dx;
  const C *before, *after;
  const T *x, *dy;
  C read, carry, factor;
  bool first;
  C gx = 0, hy = 0, gh = 0;  // results

  KOKKOS_INLINE_FUNCTION void run(const TeamMember& team, std::int64_t count) {
    const RowStep& r = *this;
    lanes_for(team, count, [=](const std::int64_t p) {
      const C value = multiply_add(r.read, r.dy[p], r.carry * r.g[p]);
      r.g[p] = value;
      r.dx[p] = multiply_add(r.factor, value, r.first ? C(0) : r.dx[p]);
    });
    gx = lanes_sum<C>(team, count, [=](const std::int64_t p) { return r.g[p] * r.x[p]; });
    hy = lanes_sum<C>(team, count, [=](const std::int64_t p) { return r.after[p] * r.dy[p]; });
    gh = lanes_sum<C>(team, count, [=](const std::int64_t p) { return r.g[p] * r.before[p]; });
  }
};

// Scratch of a team. A row is the part of the state that belongs to one of its S components; every scan_team-th of them is one
// thread's, which takes them in turn: `history` holds the states of its row before and within the chunk, dx the sum over its
// rows.
template <class T>
struct DeviceScanScratch {
  T *history, *dx, *gradient, *step, *decay, *sigmoid, *gx, *gh, *terms, *totals;

  static constexpr std::int64_t row_history = scan_chunk + 1;
  KOKKOS_INLINE_FUNCTION static std::int64_t elements(std::int64_t state, std::int64_t head_size) {
    return (scan_team * (row_history + scan_chunk) + state) * head_size + 3 * scan_chunk + 2 * state * scan_chunk +
           3 * scan_chunk + 3;
  }
  KOKKOS_INLINE_FUNCTION DeviceScanScratch(T* memory, std::int64_t state, std::int64_t head_size) {
    history = memory;
    dx = history + scan_team * row_history * head_size;
    gradient = dx + scan_team * scan_chunk * head_size;
    step = gradient + state * head_size;
    decay = step + scan_chunk;
    sigmoid = decay + scan_chunk;
    gx = sigmoid + scan_chunk;  // [scan_chunk, S]
    gh = gx + state * scan_chunk;
    terms = gh + state * scan_chunk;  // of a, d and dt_bias, by position of the chunk
    totals = terms + 3 * scan_chunk;
  }
};

inline std::int64_t scan_teams(const ScanShape& z) {
  const std::int64_t units = z.batch * z.heads;
  return units < most_scan_teams ? units : most_scan_teams;
}
inline std::int64_t device_scan_scratch(const ScanShape& z) {
  return scan_teams(z) * DeviceScanScratch<float>::elements(z.state, z.head_size);
}

// One sequence and head: rows of the state by thread, features by vector lane.
template <class T, class C = Compute<T>>
KOKKOS_INLINE_FUNCTION void scan_backward_of_head(const TeamMember& team, const ScanBackward<T>& v,
                                                  const DeviceScanScratch<C>& k, std::int64_t unit) {
  const ScanShape& z = v.z;
  const std::int64_t chunks = chunks_of(z), by_head = z.heads * z.state;
  const std::int64_t sequence = unit / z.heads, h = unit % z.heads;
  const std::int64_t features = z.head_size, size = z.state * features, width = z.heads * features;
  const std::int64_t group = h / (z.heads / z.groups) * z.state;
  const C* kept = v.states.data() + unit * chunks * size;
  const C a = -exponential(v.a_log(h));
  const std::int64_t threads = z.state < scan_team ? z.state : scan_team;  // that have rows of the state
  C next_decay = 0;                                                        // of the first position behind the chunk
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, z.state), [&](const std::int64_t s) {
    lanes_for(team, features, [=](const std::int64_t p) { k.gradient[s * features + p] = 0; });
  });
  Kokkos::single(Kokkos::PerTeam(team), [&]() { k.totals[0] = k.totals[1] = k.totals[2] = 0; });
  for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const std::int64_t first = sequence * z.sequence + chunk * scan_chunk;  // row
    const std::int64_t left = z.sequence - chunk * scan_chunk, count = left < scan_chunk ? left : scan_chunk;
    const T* x = v.in.x.data + first * v.in.x.stride + h * features;
    const T* dy = v.output_gradient.data() + first * width + h * features;
    const T* b = v.in.b.data + first * v.in.b.stride + group;
    const T* c = v.in.c.data + first * v.in.c.stride + group;
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](const std::int64_t t) {
      const C raw = v.in.dt.data[(first + t) * v.in.dt.stride + h] + v.dt_bias(h);
      const C step = softplus(raw);
      Kokkos::single(Kokkos::PerThread(team), [&]() {
        k.step[t] = step;
        k.decay[t] = exponential(step * a);
        k.sigmoid[t] = C(1) / (C(1) + exponential(-raw));
      });
    });
    team.team_barrier();
    // Rows of the state do not meet: each is taken forward and back through the chunk on its own.
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, threads), [&](const std::int64_t thread) {
      C* history = k.history + thread * DeviceScanScratch<C>::row_history * features;
      for (std::int64_t s = thread; s < z.state; s += scan_team) {
        C* g = k.gradient + s * features;
        const C* start = kept + (chunk - 1) * size + s * features;
        if (chunk > 0) {
          lanes_for(team, features, [=](const std::int64_t p) { history[p] = start[p]; });
        } else {
          lanes_for(team, features, [=](const std::int64_t p) { history[p] = 0; });
        }
        for (std::int64_t t = 0; t < count; ++t) {
          const C factor = k.step[t] * b[t * v.in.b.stride + s], decay = k.decay[t];
          const C* old = history + t * features;
          C* next = history + (t + 1) * features;
          const T* input = x + t * v.in.x.stride;
          lanes_for(team, features, [=](const std::int64_t p) { next[p] = multiply_add(factor, input[p], decay * old[p]); });
        }
        for (std::int64_t t = count - 1; t >= 0; --t) {
          const C b_s = b[t * v.in.b.stride + s];
          RowStep<T> step{.g = g,
                          .dx = k.dx + (thread * scan_chunk + t) * features,
                          .before = history + t * features,
                          .after = history + (t + 1) * features,
                          .x = x + t * v.in.x.stride,
                          .dy = dy + t * width,
                          .read = c[t * v.in.c.stride + s],
                          .carry = t + 1 < count ? k.decay[t + 1] : next_decay,
                          .factor = k.step[t] * b_s,
                          .first = s == thread};
          step.run(team, features);
          Kokkos::single(Kokkos::PerThread(team), [&]() {
            v.b_by_head[(first + t) * by_head + h * z.state + s] = k.step[t] * step.gx;
            v.c_by_head[(first + t) * by_head + h * z.state + s] = step.hy;
            k.gx[t * z.state + s] = b_s * step.gx;
            k.gh[t * z.state + s] = step.gh;
          });
        }
      }
    });
    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, count), [&](const std::int64_t t) {
      const T* input = x + t * v.in.x.stride;
      const T* gradient = dy + t * width;
      T* dx = v.out.x.data + (first + t) * v.out.x.stride + h * features;
      const C skip = v.d(h);
      const C xy = lanes_sum<C>(team, features, [=](const std::int64_t p) { return input[p] * gradient[p]; });
      lanes_for(team, features, [=](const std::int64_t p) {
        C sum = skip * gradient[p];
        for (std::int64_t thread = 0; thread < threads; ++thread) {
          sum += k.dx[(thread * scan_chunk + t) * features + p];
        }
        dx[p] = sum;
      });
      const C* const gx_by_row = k.gx + t * z.state;
      const C* const gh_by_row = k.gh + t * z.state;
      const C gx = lanes_sum<C>(team, z.state, [=](const std::int64_t s) { return gx_by_row[s]; });
      const C gh = k.decay[t] * lanes_sum<C>(team, z.state, [=](const std::int64_t s) { return gh_by_row[s]; });
      Kokkos::single(Kokkos::PerThread(team), [&]() {
        const C raw_gradient = (gx + a * gh) * k.sigmoid[t];
        v.out.dt.data[(first + t) * v.out.dt.stride + h] = raw_gradient;
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
        v.sums(3 * unit + i) = k.totals[i];
      }
    });
    team.team_barrier();
  }
}

// The backward of each sequence and head by a team, which takes several of them in turn if there are many. `scratch`:
// device_scan_scratch() elements.
template <class T>
void scan_backward_on_device(const ExecutionSpace& space, const ScanBackward<T>& scan, Compute<T>* scratch) {
  using C = Compute<T>;
  const ScanBackward<T> v = scan;
  const std::int64_t units = v.z.batch * v.z.heads, elements = DeviceScanScratch<C>::elements(v.z.state, v.z.head_size);
  Kokkos::parallel_for(
      "minipipe::selective_scan::backward_input", TeamPolicy(space, static_cast<int>(scan_teams(v.z)), scan_team, scan_vector),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const DeviceScanScratch<C> k(scratch + team.league_rank() * elements, v.z.state, v.z.head_size);
        for (std::int64_t unit = team.league_rank(); unit < units; unit += team.league_size()) {
          scan_backward_of_head<T>(team, v, k, unit);
        }
      });
}

}  // namespace minipipe::core
