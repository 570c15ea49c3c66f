#include "core/optim/learning_rate.hpp"

#include <cmath>

namespace minipipe::core {

double learning_rate(std::int64_t step, const LearningRateOptions& options) {
  if (step < options.warmup_steps) {
    return options.peak * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  if (step >= options.total_steps) {
    return options.minimum;
  }
  const double done =
      static_cast<double>(step - options.warmup_steps) / static_cast<double>(options.total_steps - options.warmup_steps);
  constexpr double pi = 3.14159265358979323846;
  return options.minimum + 0.5 * (options.peak - options.minimum) * (1 + std::cos(pi * done));
}

}  // namespace minipipe::core
