#pragma once

#include "core/kernels/pack_loops.hpp"
#include "core/kernels/selective_scan_common.hpp"

namespace minipipe::core {

// Scratch of one (sequence, head) on the host. A row belongs to one feature and has the S components of its state, with zeros
// up to whole blocks of sum_lanes, which are whole packs: loops over it need no end of their own.
template <class C>
struct HostScanScratch {
  // What goes through a chunk together: their states and gradients, and what is summed over features, fit into the registers.
  static constexpr int packs = 2, features_together = vector_registers / 8;

  static constexpr std::int64_t history_size = (scan_chunk + 1) * features_together * packs * pack_size<C>;

  std::int64_t row, features;
  C *history, *gradient, *rows, *gh, *x, *dy, *dx, *step, *decay, *sigmoid;

  static std::int64_t row_of(std::int64_t state) { return (state + sum_lanes - 1) / sum_lanes * sum_lanes; }
  static std::int64_t elements(std::int64_t state, std::int64_t head_size) {
    return row_of(state) * (head_size + 4 * scan_chunk) + history_size + scan_chunk * (sum_lanes + 3 * head_size + 3) +
           sum_lanes;
  }
  HostScanScratch(C* memory, std::int64_t state, std::int64_t head_size) : row(row_of(state)), features(head_size) {
    constexpr std::size_t alignment = sum_lanes * sizeof(C);
    memory += (alignment - reinterpret_cast<std::uintptr_t>(memory) % alignment) % alignment / sizeof(C);
    const auto take = [&](std::int64_t count) {
      C* const start = memory;
      memory += count;
      return start;
    };
    history = take(history_size);     // states before and within the chunk, of some features and packs
    gradient = take(features * row);  // of the state behind the position
    rows = take(4 * scan_chunk * row);
    gh = take(scan_chunk * sum_lanes);  // parts of <g_t, h_{t-1}>
    x = take(scan_chunk * features);
    dy = take(scan_chunk * features);
    dx = take(scan_chunk * features);
    step = take(scan_chunk);
    decay = take(scan_chunk);
    sigmoid = take(scan_chunk);
  }
  // Rows of position t of the chunk. They lie next to each other: at distances of whole pages, loads would wait for stores.
  C* write(std::int64_t t) const { return rows + 4 * t * row; }  // dt B
  C* read(std::int64_t t) const { return write(t) + row; }       // C
  C* gx(std::int64_t t) const { return write(t) + 2 * row; }     // g x and h dy, summed over the features
  C* hy(std::int64_t t) const { return write(t) + 3 * row; }
};

// The backward of one sequence and head on the host: vectors along the state, so that of all sums only that for x's gradient
// runs along a vector. A few features go through a chunk together: what they share is read and written once for all of them.
template <class T>
class HostScanBackward {
 public:
  using C = Compute<T>;

  HostScanBackward(const ScanBackward<T>& scan, C* memory, std::int64_t unit)
      : v_(scan), k_(memory, scan.z.state, scan.z.head_size), unit_(unit), h_(unit % scan.z.heads) {}

  void run() {
    const std::int64_t chunks = chunks_of(v_.z);
    C totals[3] = {}, next_decay = 0;  // of the first position behind the chunk
    clear(k_.gradient, v_.z.head_size * k_.row);
    for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
      const std::int64_t left = v_.z.sequence - chunk * scan_chunk;
      first_ = unit_ / v_.z.heads * v_.z.sequence + chunk * scan_chunk;
      count_ = left < scan_chunk ? left : scan_chunk;
      prepare();
      std::int64_t first = 0;
      for (; first + Scratch::packs * size <= k_.row; first += Scratch::packs * size) {
        pass_features<Scratch::packs>(first, chunk, next_decay);
      }
      for (; first < k_.row; first += size) pass_features<1>(first, chunk, next_decay);
      finish(totals);
      next_decay = k_.decay[0];
    }
    for (int i = 0; i < 3; ++i) v_.sums(3 * unit_ + i) = totals[i];
  }

 private:
  using Scratch = HostScanScratch<C>;
  static constexpr std::int64_t size = pack_size<C>;

  static void clear(C* values, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) values[i] = 0;
  }
  std::int64_t group() const { return h_ / (v_.z.heads / v_.z.groups) * v_.z.state; }
  const T* b(std::int64_t t) const { return v_.in.b.data + (first_ + t) * v_.in.b.stride + group(); }
  const T* c(std::int64_t t) const { return v_.in.c.data + (first_ + t) * v_.in.c.stride + group(); }
  C a() const { return -exponential(v_.a_log(h_)); }

  void prepare() {
    const std::int64_t column = h_ * k_.features, width = v_.z.heads * k_.features;
    for (std::int64_t t = 0; t < count_; ++t) {
      const C raw = v_.in.dt.data[(first_ + t) * v_.in.dt.stride + h_] + v_.dt_bias(h_);
      k_.step[t] = softplus(raw);
      k_.decay[t] = exponential(k_.step[t] * a());
      k_.sigmoid[t] = C(1) / (C(1) + exponential(-raw));
      const T *b_t = b(t), *c_t = c(t);
      clear(k_.write(t), 4 * k_.row);
      for (std::int64_t s = 0; s < v_.z.state; ++s) {
        k_.write(t)[s] = k_.step[t] * b_t[s];
        k_.read(t)[s] = c_t[s];
      }
      const T* x = v_.in.x.data + (first_ + t) * v_.in.x.stride + column;
      const T* dy = v_.output_gradient.data() + (first_ + t) * width + column;
      for (std::int64_t p = 0; p < k_.features; ++p) {
        k_.x[t * k_.features + p] = x[p];
        k_.dy[t * k_.features + p] = dy[p];
      }
    }
    clear(k_.gh, count_ * size);
  }
  // `Packs` packs of the state from `first` on, of all features.
  template <int Packs>
  void pass_features(std::int64_t first, std::int64_t chunk, C next_decay) {
    constexpr int together = Scratch::features_together;
    std::int64_t p = 0;
    for (; p + together <= k_.features; p += together) {
      forward<Packs, together>(p, first, chunk);
      backward<Packs, together>(p, first, next_decay);
    }
    for (; p < k_.features; ++p) {
      forward<Packs, 1>(p, first, chunk);
      backward<Packs, 1>(p, first, next_decay);
    }
  }
  // Behind position t - 1 of the chunk.
  template <int Packs, int Features>
  C* history(std::int64_t t, int feature) const {
    return k_.history + (t * Features + feature) * Packs * size;
  }
  // The states of features p .. p + Features - 1 again, from those kept before the chunk.
  template <int Packs, int Features>
  void forward(std::int64_t p, std::int64_t first, std::int64_t chunk) {
    const std::int64_t kept_size = v_.z.state * k_.features, left = v_.z.state - first;
    const C* kept = v_.states.data() + (unit_ * chunks_of(v_.z) + chunk - 1) * kept_size + first * k_.features + p;
    Pack<C> h[Features][Packs];
    for (int f = 0; f < Features; ++f) {
      C* start = history<Packs, Features>(0, f);
      for (std::int64_t s = 0; s < Packs * size; ++s) start[s] = chunk > 0 && s < left ? kept[s * k_.features + f] : C(0);
      for (int i = 0; i < Packs; ++i) h[f][i] = load_pack(start + i * size);
    }
    for (std::int64_t t = 0; t < count_; ++t) {
      const C* x = k_.x + t * k_.features + p;
      const Pack<C> decay = Pack<C>{} + k_.decay[t];
      for (int f = 0; f < Features; ++f) {
        const Pack<C> input = Pack<C>{} + x[f];
        for (int i = 0; i < Packs; ++i) {
          h[f][i] = multiply_add(load_pack(k_.write(t) + first + i * size), input, decay * h[f][i]);
          store_pack(history<Packs, Features>(t + 1, f) + i * size, h[f][i]);
        }
      }
    }
  }
  template <int Packs, int Features>
  void backward(std::int64_t p, std::int64_t first, C next_decay) {
    C* const gradient = k_.gradient + p * k_.row + first;
    Pack<C> g[Features][Packs];
    for (int f = 0; f < Features; ++f) {
      for (int i = 0; i < Packs; ++i) g[f][i] = load_pack(gradient + f * k_.row + i * size);
    }
    for (std::int64_t t = count_ - 1; t >= 0; --t) {
      const C *x = k_.x + t * k_.features + p, *dy = k_.dy + t * k_.features + p;
      C* dx = k_.dx + t * k_.features + p;
      const Pack<C> carry = Pack<C>{} + (t + 1 < count_ ? k_.decay[t + 1] : next_decay);
      Pack<C> read[Packs], write[Packs], gx[Packs], hy[Packs], gh = load_pack(k_.gh + t * size);
      for (int i = 0; i < Packs; ++i) {
        read[i] = load_pack(k_.read(t) + first + i * size);
        write[i] = load_pack(k_.write(t) + first + i * size);
        gx[i] = load_pack(k_.gx(t) + first + i * size);
        hy[i] = load_pack(k_.hy(t) + first + i * size);
      }
      for (int f = 0; f < Features; ++f) {
        const Pack<C> input = Pack<C>{} + x[f], slope = Pack<C>{} + dy[f];
        Pack<C> lanes = {};
        for (int i = 0; i < Packs; ++i) {
          g[f][i] = multiply_add(read[i], slope, carry * g[f][i]);
          gx[i] = multiply_add(g[f][i], input, gx[i]);
          hy[i] = multiply_add(load_pack(history<Packs, Features>(t + 1, f) + i * size), slope, hy[i]);
          gh = multiply_add(g[f][i], load_pack(history<Packs, Features>(t, f) + i * size), gh);
          lanes = multiply_add(write[i], g[f][i], lanes);
        }
        const C sum = sum_of_lanes(lanes);
        dx[f] = first == 0 ? multiply_add(v_.d(h_), dy[f], sum) : dx[f] + sum;
      }
      for (int i = 0; i < Packs; ++i) {
        store_pack(k_.gx(t) + first + i * size, gx[i]);
        store_pack(k_.hy(t) + first + i * size, hy[i]);
      }
      store_pack(k_.gh + t * size, gh);
    }
    for (int f = 0; f < Features; ++f) {
      for (int i = 0; i < Packs; ++i) store_pack(gradient + f * k_.row + i * size, g[f][i]);
    }
  }
  void finish(C (&totals)[3]) {
    C sums[3] = {};
    for (std::int64_t t = 0; t < count_; ++t) {
      const C *gx = k_.gx(t), *hy = k_.hy(t), *x = k_.x + t * k_.features, *dy = k_.dy + t * k_.features;
      const std::int64_t to = ((first_ + t) * v_.z.heads + h_) * v_.z.state;
      const T* b_t = b(t);
      for (std::int64_t s = 0; s < v_.z.state; ++s) {
        v_.b_by_head[to + s] = k_.step[t] * gx[s];
        v_.c_by_head[to + s] = hy[s];
      }
      T* dx = v_.out.x.data + (first_ + t) * v_.out.x.stride + h_ * k_.features;
      for (std::int64_t p = 0; p < k_.features; ++p) dx[p] = k_.dx[t * k_.features + p];
      const C gh = sum_of_lanes(load_pack(k_.gh + t * size)) * k_.decay[t];
      const C bgx = row_sum<C>(HostMember{}, v_.z.state, [=](const std::int64_t s) { return b_t[s] * gx[s]; });
      const C raw_gradient = (bgx + a() * gh) * k_.sigmoid[t];
      v_.out.dt.data[(first_ + t) * v_.out.dt.stride + h_] = raw_gradient;
      sums[0] += k_.step[t] * gh * a();  // dA / d a_log = A
      sums[1] += row_sum<C>(HostMember{}, k_.features, [=](const std::int64_t p) { return x[p] * dy[p]; });
      sums[2] += raw_gradient;
    }
    for (int i = 0; i < 3; ++i) totals[i] += sums[i];
  }

  const ScanBackward<T>& v_;
  Scratch k_;
  std::int64_t unit_, h_, first_ = 0, count_ = 0;
};

template <class T>
void scan_backward_on_host(const ExecutionSpace& space, const ScanBackward<T>& scan) {
  const auto bytes =
      static_cast<int>(HostScanScratch<Compute<T>>::elements(scan.z.state, scan.z.head_size) * sizeof(Compute<T>));
  TeamPolicy policy(space, static_cast<int>(scan.z.batch * scan.z.heads), 1);
  policy.set_scratch_size(0, Kokkos::PerTeam(bytes));
  Kokkos::parallel_for("minipipe::selective_scan::backward_input", policy, [=](const TeamMember& team) {
    HostScanBackward<T>(scan, static_cast<Compute<T>*>(team.team_scratch(0).get_shmem(bytes)), team.league_rank()).run();
  });
}

}  // namespace minipipe::core
