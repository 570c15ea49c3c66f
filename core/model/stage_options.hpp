#pragma once

#include <cstdint>

#include "core/model/model_config.hpp"
#include "core/model/partition.hpp"
#include "core/model/recompute.hpp"
#include "core/model/replication.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/learning_rate.hpp"
#include "core/optim/optimizer.hpp"
#include "core/types/types.hpp"
#include "schedules/policy/versions.hpp"

namespace minipipe::core {

// Gradient clipping before an optimizer step: by the norm of this stage's gradients, or of the whole model's.
enum class Clip { none, stage, global };

// Memory of the messages next to a stage, owned by whoever made the channels: row s of each is slot s and holds
// message_floats(). Empty where there is no neighbour. For results that do not depend on the number
// of stages to the last bit, rows start at multiples of 64 bytes.
struct MessageMemory {
  Matrix<float> activation_in;   // from the previous stage; read only
  Matrix<float> activation_out;  // to the next stage
  Matrix<float> gradient_in;     // from the next stage; read only
  Matrix<float> gradient_out;    // to the previous stage
};

// With which weights the passes of a microbatch run. Under double buffering both passes of window u use version max(u - 1, 0),
// version v being the weights after v updates (arXiv 2006.09503: W(t+1) = W(t) - rate grad(W(t-1))).
using schedules::WeightRule;

// PipeMare's corrections for a delay of tau updates between the weights of a forward and those that its gradient changes.
struct PipeMareOptions {
  double delay = -1;                 // tau of this stage in updates; negative: the paper's (2 (N - i) + 1) / window
  std::int64_t annealing_steps = 0;  // K: update k has its rate divided by tau^(1 - min(k/K, 1)) if tau > 1; 0: never divided
  double decay = 0.1;                // D, in (0, 1): the mean change forgets a share D within tau updates, so gamma = D^(1/tau)
};

// Floats of one message, which holds microbatch_size * sequence * width numbers: half as many in bf16, two in the place of one.
std::int64_t message_floats(const ModelConfig& model, const TrainShape& shape, Precision precision);

struct KokkosStageOptions {
  ModelConfig model;
  TrainShape shape;
  StageLayers layers;
  int stage = 0;  // 0-based
  int stages = 1;
  std::uint64_t seed = 1;             // of initial values and dropout
  std::int64_t activation_slots = 1;  // microbatches that can be alive on this stage
  std::int64_t window = 1;            // microbatches per update; gradients are those of the mean loss of the window
  OptimizerKind optimizer = OptimizerKind::adamw;
  AdamWOptions adamw;  // also for NAdam; with Muon for what it does not update, and its weight decay for all
  MuonOptions muon;
  LearningRateOptions learning_rate;
  Clip clip = Clip::none;
  double clip_norm = 1.0;       // the largest norm that is not scaled down
  bool split_backward = false;  // backward_input and backward_weight may be called apart
  Recompute recompute = Recompute::none;
  WeightRule weight_rule = WeightRule::current;
  int weight_copies = 1;                 // stashed: versions there is room for, the newest included (N - i + 1)
  PipeMareOptions pipemare;              // corrected only
  std::int64_t synchronous_updates = 0;  // the first updates belong to a flush schedule: the rule holds from then on
  ReplicaOptions replication;
  Precision precision = Precision::fp32;
  MessageMemory messages;
};

// Bytes a stage allocates; the memory of messages is counted by its owner.
struct StageBytes {
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;  // moments and workspace
  // Older or corrected weights and their mean change, beside the parameters; with bf16 the copies of all weights' matrices.
  std::size_t weight_versions = 0;
  std::size_t activations = 0;  // activation slots and workspaces

  std::size_t total() const { return parameters + gradients + optimizer + weight_versions + activations; }
  StageBytes& operator+=(const StageBytes& other) {
    parameters += other.parameters;
    gradients += other.gradients;
    optimizer += other.optimizer;
    weight_versions += other.weight_versions;
    activations += other.activations;
    return *this;
  }
  friend bool operator==(const StageBytes&, const StageBytes&) = default;
};

// tau of the stage (see PipeMareOptions).
double pipemare_delay(const KokkosStageOptions& options);

// What a KokkosStage with these options will allocate; allocates nothing. Messages are not looked at.
StageBytes planned_memory(const KokkosStageOptions& options);

}  // namespace minipipe::core
