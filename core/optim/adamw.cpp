#include "core/optim/adamw.hpp"

#include <cmath>
#include <cstring>

#include "core/kernels/math.hpp"
#include "core/kernels/pack_loops.hpp"
#include "core/kernels/pieces.hpp"
#include "core/kernels/reduce.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// The numbers of one step, formed in double on the host. The direction's numerator is momentum_weight m + gradient_weight g.
template <class T>
struct Coefficients {
  T beta1, one_minus_beta1, beta2, one_minus_beta2, momentum_weight, gradient_weight, inverse_root_correction2, epsilon, rate,
      scale;
};

template <class T>
struct Range {
  T *parameters, *first_moment, *second_moment;
  const T* gradients;
  std::int64_t count;
  T decay;
  bf16* copy;  // of the new parameters, or null
};

// Where a range starts in each array.
struct Starts {
  std::int64_t parameters, first_moment, second_moment, gradients;

  explicit Starts(const ParameterRange& range)
      : parameters(range.offset),
        first_moment(range.first_moment < 0 ? range.offset : range.first_moment),
        second_moment(range.second_moment < 0 ? range.offset : range.second_moment),
        gradients(range.gradient < 0 ? range.offset : range.gradient) {}
  Starts after(std::int64_t count) const {
    Starts next = *this;
    for (std::int64_t* start : {&next.parameters, &next.first_moment, &next.second_moment, &next.gradients}) *start += count;
    return next;
  }
  friend bool operator==(const Starts&, const Starts&) = default;
};

// The new numbers of one parameter, or of a pack of them.
template <bool Nesterov, class T, class V>
KOKKOS_INLINE_FUNCTION void step(const Coefficients<T>& k, T decay, V gradient, V& parameter, V& first_moment,
                                 V& second_moment) {
  const V g = k.scale * gradient;
  first_moment = k.beta1 * first_moment + k.one_minus_beta1 * g;
  second_moment = k.beta2 * second_moment + k.one_minus_beta2 * g * g;
  V numerator = first_moment * k.momentum_weight;
  if (Nesterov) numerator += g * k.gradient_weight;
  const V direction = numerator / (square_root(second_moment) * k.inverse_root_correction2 + k.epsilon);
  parameter -= k.rate * direction + decay * parameter;
}

// ---- host: all of a block in one loop, so that its streams go through memory side by side ---------------------------------

// Sums of squares in as many lanes as row_sum() has, and added up as there.
template <class C>
struct HostSquares {
  typedef float Half __attribute__((vector_size(vector_bytes / 2)));
  static constexpr int parts = sum_lanes / pack_size<C>;  // packs that make one element of each lane
  Pack<double> lower[parts] = {}, upper[parts] = {};

  void add(Pack<C> x, int part) {
    // One by one: nvcc loses the type of arrays of such vectors.
    Half first, second;
    std::memcpy(&first, &x, sizeof first);
    std::memcpy(&second, reinterpret_cast<const char*>(&x) + sizeof first, sizeof second);
    const Pack<double> a = __builtin_convertvector(first, Pack<double>), b = __builtin_convertvector(second, Pack<double>);
    lower[part] += a * a;
    upper[part] += b * b;
  }
  double sum() {
    for (int half = parts / 2; half > 0; half /= 2) {
      for (int part = 0; part < half; ++part) {
        lower[part] += lower[part + half];
        upper[part] += upper[part + half];
      }
    }
    return sum_of_lanes(lower[0] + upper[0]);
  }
};

template <bool Nesterov>
double host_block(const Coefficients<float>& k, const Range<float>& range, std::int64_t first, std::int64_t end) {
  const Range<float> r = range;
  using Squares = HostSquares<float>;
  Squares squares;
  each_pack_in_parts<float, Squares::parts>(first, end, [&](const auto& lanes, std::int64_t i, int part) {
    const Pack<float> g = lanes.load(r.gradients + i);
    Pack<float> p = lanes.load(r.parameters + i), m = lanes.load(r.first_moment + i), v = lanes.load(r.second_moment + i);
    step<Nesterov>(k, r.decay, g, p, m, v);
    lanes.store(r.first_moment + i, m);
    lanes.store(r.second_moment + i, v);
    lanes.store(r.parameters + i, p);
    if (r.copy != nullptr) lanes.store(r.copy + i, p);
    squares.add(g, part);
  });
  return squares.sum();
}

// ---- device, and double: a block in the lanes of a team -------------------------------------------------------------------

template <bool Nesterov, class T, class Member>
KOKKOS_INLINE_FUNCTION double team_block(const Member& member, const Coefficients<T>& k, const Range<T>& range,
                                         std::int64_t first, std::int64_t end, bool with_squares) {
  double total = 0;
  if (with_squares) {
    total = row_sum<double>(member, end - first, [=](const std::int64_t i) {
      const double value = range.gradients[first + i];
      return value * value;
    });
  }
  row_for(member, end - first, [=](const std::int64_t offset) {
    const std::int64_t i = first + offset;
    T p = range.parameters[i], m = range.first_moment[i], v = range.second_moment[i];
    step<Nesterov>(k, range.decay, range.gradients[i], p, m, v);
    range.first_moment[i] = m;
    range.second_moment[i] = v;
    range.parameters[i] = p;
    if (range.copy != nullptr) range.copy[i] = static_cast<float>(p);
  });
  return total;
}

// `squares`: by block of the table; empty: not asked for.
template <bool Nesterov, class T>
void update_ranges(const ExecutionSpace& space, const PieceTable<Range<T>>& table, const Coefficients<T>& k,
                   Vector<double> squares) {
  double* const block_squares = squares.data();
  for_rows(
      Nesterov ? "minipipe::nadam::update" : "minipipe::adamw::update", space, table.blocks(),
      KOKKOS_LAMBDA(const RowMember& member, const std::int64_t b) {
        const PartOfPiece<Range<T>> part = table.part(b);
        const std::int64_t end = part.first + part.count;
        const Coefficients<T>& with = k;  // before the branch, because nvcc captures nothing inside it
        double* const sums = block_squares;
        double total = 0;
        if constexpr (on_host && std::is_same_v<T, float>) {
          total = host_block<Nesterov>(with, part.piece, part.first, end);
        } else {
          total = team_block<Nesterov>(member, with, part.piece, part.first, end, sums != nullptr);
        }
        if (sums != nullptr) row_for(member, 1, [=](const std::int64_t) { sums[b] = total; });
      });
}

template <bool Nesterov, class T>
void update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
            ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options, double learning_rate,
            std::int64_t step, double gradient_scale, const UpdateExtras<T>& extras) {
  const char* const name = Nesterov ? "nadam_update" : "adamw_update";
  require_shape(step >= 1, name);
  const double n = static_cast<double>(step);
  Coefficients<T> k = {};
  k.beta1 = static_cast<T>(options.beta1);
  k.one_minus_beta1 = static_cast<T>(1 - options.beta1);
  k.beta2 = static_cast<T>(options.beta2);
  k.one_minus_beta2 = static_cast<T>(1 - options.beta2);
  if (Nesterov) {
    k.momentum_weight = static_cast<T>(options.beta1 / (1 - std::pow(options.beta1, n + 1)));
    k.gradient_weight = static_cast<T>((1 - options.beta1) / (1 - std::pow(options.beta1, n)));
  } else {
    k.momentum_weight = static_cast<T>(1 / (1 - std::pow(options.beta1, n)));
  }
  k.inverse_root_correction2 = static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, n)));
  k.epsilon = static_cast<T>(options.epsilon);
  k.rate = static_cast<T>(learning_rate);
  k.scale = static_cast<T>(gradient_scale);
  const bool with_squares = extras.squares.size() > 0, with_copies = !extras.copies.empty();
  require_shape(
      (!with_squares || extras.squares.size() >= ranges.size()) && (!with_copies || extras.copies.size() == ranges.size()),
      name);
  PieceTable<Range<T>> table;
  std::int64_t result = 0;
  const auto launch = [&] {
    require_shape(!with_squares || table.blocks() <= extent(extras.workspace, 0), name);
    update_ranges<Nesterov, T>(space, table, k, with_squares ? extras.workspace : Vector<double>());
    if (with_squares) {
      sum_blocks("minipipe::adamw::blocks_of_squares", space, extras.squares, result, table,
                 ConstVector<double>(extras.workspace));
    }
    result += table.pieces();
    table = {};
  };
  for (std::size_t i = 0; i < ranges.size();) {
    const Starts first(ranges[i]);
    const bool decay = ranges[i].decay;
    std::int64_t count = ranges[i].count;
    const Vector<bf16> copy = with_copies ? extras.copies[i] : Vector<bf16>();
    require_shape(copy.size() == 0 || extent(copy, 0) == count, name);
    for (++i; !with_squares && !with_copies && i < ranges.size() && ranges[i].decay == decay &&
              Starts(ranges[i]) == first.after(count);
         ++i) {
      count += ranges[i].count;
    }
    const auto fits = [&](std::int64_t start, const auto& array) { return start >= 0 && start + count <= extent(array, 0); };
    require_shape(count >= 0 && fits(first.parameters, parameters) && fits(first.first_moment, first_moment) &&
                      fits(first.second_moment, second_moment) && fits(first.gradients, gradients),
                  name);
    table.add({parameters.data() + first.parameters, first_moment.data() + first.first_moment,
               second_moment.data() + first.second_moment, gradients.data() + first.gradients, count,
               static_cast<T>(decay ? learning_rate * options.weight_decay : 0.0), copy.data()});
    if (table.full()) launch();
  }
  if (table.pieces() > 0) launch();
}

}  // namespace

template <class T>
void adamw_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
                  ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options,
                  double learning_rate, std::int64_t step, double gradient_scale) {
  update<false, T>(space, parameters, first_moment, second_moment, gradients, ranges, options, learning_rate, step,
                   gradient_scale, {});
}

template <class T>
void nadam_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
                  ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options,
                  double learning_rate, std::int64_t step, double gradient_scale) {
  update<true, T>(space, parameters, first_moment, second_moment, gradients, ranges, options, learning_rate, step,
                  gradient_scale, {});
}

template <class T>
void update_with_extras(const ExecutionSpace& space, bool nesterov, Vector<T> parameters, Vector<T> first_moment,
                        Vector<T> second_moment, ConstVector<T> gradients, std::span<const ParameterRange> ranges,
                        const AdamWOptions& options, double learning_rate, std::int64_t step, double gradient_scale,
                        const UpdateExtras<T>& extras) {
  const auto with = nesterov ? update<true, T> : update<false, T>;
  with(space, parameters, first_moment, second_moment, gradients, ranges, options, learning_rate, step, gradient_scale, extras);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                           \
  template void adamw_update<T>(const ExecutionSpace&, Vector<T>, Vector<T>, Vector<T>, ConstVector<T>,                   \
                                std::span<const ParameterRange>, const AdamWOptions&, double, std::int64_t, double);      \
  template void nadam_update<T>(const ExecutionSpace&, Vector<T>, Vector<T>, Vector<T>, ConstVector<T>,                   \
                                std::span<const ParameterRange>, const AdamWOptions&, double, std::int64_t, double);      \
  template void update_with_extras<T>(const ExecutionSpace&, bool, Vector<T>, Vector<T>, Vector<T>, ConstVector<T>,       \
                                      std::span<const ParameterRange>, const AdamWOptions&, double, std::int64_t, double, \
                                      const UpdateExtras<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
