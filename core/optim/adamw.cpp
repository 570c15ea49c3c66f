#include "core/optim/adamw.hpp"

#include <cmath>

#include "core/kernels/math.hpp"
#include "core/kernels/pieces.hpp"
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

template <bool Nesterov, class T>
void update_ranges(const ExecutionSpace& space, const PieceTable<Range<T>>& ranges, const Coefficients<T>& k) {
  for_pieces(
      Nesterov ? "minipipe::nadam::update" : "minipipe::adamw::update", space, ranges,
      KOKKOS_LAMBDA(const Range<T>& range, const std::int64_t i) {
        const T g = k.scale * range.gradients[i];
        const T m = k.beta1 * range.first_moment[i] + k.one_minus_beta1 * g;
        const T v = k.beta2 * range.second_moment[i] + k.one_minus_beta2 * g * g;
        range.first_moment[i] = m;
        range.second_moment[i] = v;
        T numerator = m * k.momentum_weight;
        if (Nesterov) numerator += g * k.gradient_weight;
        const T direction = numerator / (square_root(v) * k.inverse_root_correction2 + k.epsilon);
        range.parameters[i] -= k.rate * direction + range.decay * range.parameters[i];
      });
}

template <bool Nesterov, class T>
void update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
            ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options, double learning_rate,
            std::int64_t step, double gradient_scale) {
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
  PieceTable<Range<T>> table;
  for (std::size_t i = 0; i < ranges.size();) {
    const Starts first(ranges[i]);
    const bool decay = ranges[i].decay;
    std::int64_t count = ranges[i].count;
    for (++i; i < ranges.size() && ranges[i].decay == decay && Starts(ranges[i]) == first.after(count); ++i) {
      count += ranges[i].count;
    }
    const auto fits = [&](std::int64_t start, const auto& array) { return start >= 0 && start + count <= extent(array, 0); };
    require_shape(count >= 0 && fits(first.parameters, parameters) && fits(first.first_moment, first_moment) &&
                      fits(first.second_moment, second_moment) && fits(first.gradients, gradients),
                  name);
    table.add({parameters.data() + first.parameters, first_moment.data() + first.first_moment,
               second_moment.data() + first.second_moment, gradients.data() + first.gradients, count,
               static_cast<T>(decay ? learning_rate * options.weight_decay : 0.0)},
              count);
    if (table.full()) {
      update_ranges<Nesterov, T>(space, table, k);
      table = {};
    }
  }
  if (table.blocks() > 0) update_ranges<Nesterov, T>(space, table, k);
}

}  // namespace

template <class T>
void adamw_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
                  ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options,
                  double learning_rate, std::int64_t step, double gradient_scale) {
  update<false, T>(space, parameters, first_moment, second_moment, gradients, ranges, options, learning_rate, step,
                   gradient_scale);
}

template <class T>
void nadam_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
                  ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options,
                  double learning_rate, std::int64_t step, double gradient_scale) {
  update<true, T>(space, parameters, first_moment, second_moment, gradients, ranges, options, learning_rate, step,
                  gradient_scale);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                      \
  template void adamw_update<T>(const ExecutionSpace&, Vector<T>, Vector<T>, Vector<T>, ConstVector<T>,              \
                                std::span<const ParameterRange>, const AdamWOptions&, double, std::int64_t, double); \
  template void nadam_update<T>(const ExecutionSpace&, Vector<T>, Vector<T>, Vector<T>, ConstVector<T>,              \
                                std::span<const ParameterRange>, const AdamWOptions&, double, std::int64_t, double);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
