#pragma once

#include <cstdint>

#include "core/model/model_config.hpp"
#include "core/model/partition.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/learning_rate.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Gradient clipping before an optimizer step: by the norm of this stage's gradients, or of the whole model's.
enum class Clip { none, stage, global };

// Memory of the messages next to a stage, owned by whoever made the channels: row s of each is slot s,
// microbatch_size * sequence * width floats. Empty where there is no neighbour. For results that do not depend on the number
// of stages to the last bit, rows start at multiples of 64 bytes.
struct MessageMemory {
  Matrix<float> activation_in;   // from the previous stage; read only
  Matrix<float> activation_out;  // to the next stage
  Matrix<float> gradient_in;     // from the next stage; read only
  Matrix<float> gradient_out;    // to the previous stage
};

struct KokkosStageOptions {
  ModelConfig model;
  TrainShape shape;
  StageLayers layers;
  int stage = 0;  // 0-based
  int stages = 1;
  std::uint64_t seed = 1;             // of initial values and dropout
  std::int64_t activation_slots = 1;  // microbatches that can be alive on this stage
  std::int64_t window = 1;            // microbatches per update; gradients are those of the mean loss of the window
  AdamWOptions adamw;
  LearningRateOptions learning_rate;
  Clip clip = Clip::none;
  double clip_norm = 1.0;       // the largest norm that is not scaled down
  bool split_backward = false;  // backward_input and backward_weight may be called apart
  MessageMemory messages;
};

// Bytes a stage allocates; the memory of messages is counted by its owner.
struct StageBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t activations = 0;  // activation slots and workspaces

  std::size_t total() const { return parameters + gradients + optimizer + activations; }
  friend bool operator==(const StageBytes&, const StageBytes&) = default;
};

// What a KokkosStage with these options will allocate; allocates nothing. Messages and optimizer settings are not looked at.
StageBytes planned_memory(const KokkosStageOptions& options);

}  // namespace minipipe::core
