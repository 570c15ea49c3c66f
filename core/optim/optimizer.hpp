#pragma once

namespace minipipe::core {

// Optimizers that a stage runs on its own, without any quantity of other stages.
enum class OptimizerKind {
  adamw,
  nadam,  // AdamW with Nesterov's momentum
  muon,   // Muon on the matrices inside blocks, AdamW on everything else
};

// Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, https://kellerjordan.github.io/posts/muon
struct MuonOptions {
  double learning_rate = 0.02;  // the peak; the schedule has the shape of the other parameters' one
  double momentum = 0.95;
  bool nesterov = true;
  int newton_schulz_steps = 5;
};

}  // namespace minipipe::core
