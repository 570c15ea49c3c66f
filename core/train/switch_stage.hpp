#pragma once

#include <vector>

#include "core/model/kokkos_stage.hpp"
#include "schedules/exec/stage.hpp"

namespace minipipe::core {

// A model stage as the executor sees it: trains, or, between segments, evaluates on another source of batches. One executor
// serves both, because the receives it has posted ahead belong to it.
class SwitchStage : public schedules::Stage {
 public:
  // Called for each microbatch the last stage evaluates: its number, as this replica counts, and the loss of each of its
  // tokens.
  using TokenLosses = std::function<void(std::int64_t, const std::vector<float>&)>;

  explicit SwitchStage(KokkosStage& model) : model_(model) {}

  void train() { evaluation_ = nullptr; }
  void evaluate(BatchSource& source, TokenLosses keep = {}) {
    evaluation_ = &source;
    keep_ = std::move(keep);
  }

  void forward(std::int64_t microbatch, int slot, int input, int output) override {
    if (evaluation_ == nullptr) {
      model_.forward(microbatch, slot, input, output);
      return;
    }
    model_.evaluate(microbatch, *evaluation_, input, output, keep_ ? &losses_ : nullptr);
    if (keep_ && model_.options().layers.head) keep_(microbatch, losses_);
  }
  void backward(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override {
    model_.backward(microbatch, slot, gradient_input, gradient_output);
  }
  void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override {
    model_.backward_input(microbatch, slot, gradient_input, gradient_output);
  }
  void backward_weight(std::int64_t microbatch, int slot) override { model_.backward_weight(microbatch, slot); }
  void update(std::int64_t update) override { model_.update(update); }
  bool gradients_ready(std::int64_t update) override { return model_.gradients_ready(update); }
  bool weights_ready() override { return model_.weights_ready(); }
  void complete_output() override { model_.complete_output(); }

 private:
  KokkosStage& model_;
  BatchSource* evaluation_ = nullptr;
  TokenLosses keep_;
  std::vector<float> losses_;
};

}  // namespace minipipe::core
