#include "core/optim/adamw.hpp"

#include <cmath>

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// The numbers of one step, formed in double on the host.
template <class T>
struct Coefficients {
  T beta1, one_minus_beta1, beta2, one_minus_beta2, inverse_correction1, inverse_root_correction2, epsilon, rate, decay, scale;
};

template <class T>
void update_range(const ExecutionSpace& space, T* parameters, T* first_moment, T* second_moment, const T* gradients,
                  std::int64_t count, const Coefficients<T>& k) {
  for_elements(
      "minipipe::adamw::update", space, count, KOKKOS_LAMBDA(const std::int64_t i) {
        const T g = k.scale * gradients[i];
        const T m = k.beta1 * first_moment[i] + k.one_minus_beta1 * g;
        const T v = k.beta2 * second_moment[i] + k.one_minus_beta2 * g * g;
        first_moment[i] = m;
        second_moment[i] = v;
        const T direction = m * k.inverse_correction1 / (square_root(v) * k.inverse_root_correction2 + k.epsilon);
        parameters[i] -= k.rate * direction + k.decay * parameters[i];
      });
}

}  // namespace

template <class T>
void adamw_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
                  ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options,
                  double learning_rate, std::int64_t step, double gradient_scale) {
  const std::int64_t size = extent(parameters, 0);
  require_shape(
      extent(first_moment, 0) == size && extent(second_moment, 0) == size && extent(gradients, 0) == size && step >= 1,
      "adamw_update");
  const double n = static_cast<double>(step);
  Coefficients<T> k = {};
  k.beta1 = static_cast<T>(options.beta1);
  k.one_minus_beta1 = static_cast<T>(1 - options.beta1);
  k.beta2 = static_cast<T>(options.beta2);
  k.one_minus_beta2 = static_cast<T>(1 - options.beta2);
  k.inverse_correction1 = static_cast<T>(1 / (1 - std::pow(options.beta1, n)));
  k.inverse_root_correction2 = static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, n)));
  k.epsilon = static_cast<T>(options.epsilon);
  k.rate = static_cast<T>(learning_rate);
  k.scale = static_cast<T>(gradient_scale);
  for (std::size_t i = 0; i < ranges.size();) {
    const ParameterRange& first = ranges[i];
    std::int64_t count = first.count;
    for (++i; i < ranges.size() && ranges[i].decay == first.decay && ranges[i].offset == first.offset + count; ++i) {
      count += ranges[i].count;
    }
    require_shape(first.offset >= 0 && count >= 0 && first.offset + count <= size, "adamw_update");
    k.decay = static_cast<T>(first.decay ? learning_rate * options.weight_decay : 0.0);
    update_range<T>(space, parameters.data() + first.offset, first_moment.data() + first.offset,
                    second_moment.data() + first.offset, gradients.data() + first.offset, count, k);
  }
}

#define MINIPIPE_INSTANTIATE(T)                                                                         \
  template void adamw_update<T>(const ExecutionSpace&, Vector<T>, Vector<T>, Vector<T>, ConstVector<T>, \
                                std::span<const ParameterRange>, const AdamWOptions&, double, std::int64_t, double);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)

}  // namespace minipipe::core
