#pragma once

#include <cstdint>
#include <functional>

#include "core/emulate/precise_sleep.hpp"
#include "schedules/exec/stage.hpp"

namespace minipipe::core {

struct EmulatedStageOptions {
  double forward_ms = 4.0;
  double input_ms = 4.0;   // gradient of the input
  double weight_ms = 4.0;  // gradient of the weights; a whole backward takes both
  double update_ms = 0.0;
  double jitter = 0.0;     // each duration is scaled by a factor drawn evenly from [1 - jitter, 1 + jitter], 0 <= jitter < 1
  std::uint64_t seed = 1;  // of the jitter
  int stage = 0;
  bool last = false;  // the last stage counts losses
};

// A stage that sleeps where a real one computes, so that many ranks time correctly on few cores. Does not touch messages.
// The jitter of an action depends on seed, stage, microbatch and kind only, not on the order of actions.
class EmulatedStage : public schedules::Stage {
 public:
  // `sleep` takes seconds. InputError if an option is negative or the jitter is 1 or more.
  explicit EmulatedStage(const EmulatedStageOptions& options, std::function<void(double)> sleep = precise_sleep);

  void forward(std::int64_t microbatch, int slot, int input, int output) override;
  void backward(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override;
  void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override;
  void backward_weight(std::int64_t microbatch, int slot) override;
  void update(std::int64_t update) override;

  // Number of losses of the last stage since the last call (0 on others); each of them is 0.0.
  std::int64_t take_loss_count();

 private:
  double scaled_s(double milliseconds, std::int64_t microbatch, std::uint64_t kind) const;

  EmulatedStageOptions options_;
  std::function<void(double)> sleep_;
  std::int64_t losses_ = 0;
};

}  // namespace minipipe::core
