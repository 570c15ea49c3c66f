#pragma once

#include <cstdint>

#include "core/deck/deck.hpp"
#include "core/model/kokkos_stage.hpp"

namespace minipipe::core {

// The deck's model as one stage that holds all layers, with one microbatch alive at a time.
KokkosStageOptions one_stage_options(const Deck& deck);

// Tokens without a file: scattered over the vocabulary, the same for every microbatch.
class ScatteredTokens : public BatchSource {
 public:
  ScatteredTokens(const TrainShape& shape, int vocab);
  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override;

 private:
  std::vector<std::int32_t> stream_;  // targets follow their tokens by one
};

// Training steps of one stage without neighbours.
class StepRunner {
 public:
  explicit StepRunner(const KokkosStageOptions& options);

  // One optimizer update: forward and backward of each microbatch, then the optimizer. Waits for its end.
  void step();
  double last_loss() const { return last_loss_; }  // mean over the last step, in nats per token
  StageBytes bytes() const { return stage_.bytes(); }

 private:
  std::int64_t window_;
  ScatteredTokens tokens_;
  KokkosStage stage_;
  std::int64_t microbatch_ = 0, update_ = 0;
  double last_loss_ = 0;
};

}  // namespace minipipe::core
