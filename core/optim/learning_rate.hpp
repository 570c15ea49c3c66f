#pragma once

#include <cstdint>

namespace minipipe::core {

struct LearningRateOptions {
  double peak = 1e-3;
  double minimum = 1e-4;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
};

// Learning rate of update `step` (0-based): peak (step+1)/warmup_steps while step < warmup_steps, then half a cosine from peak
// at step = warmup_steps to minimum at step = total_steps, and minimum after that.
double learning_rate(std::int64_t step, const LearningRateOptions& options);

}  // namespace minipipe::core
