#include "core/bench/step_runner.hpp"

#include <algorithm>

#include "core/train/options.hpp"

namespace minipipe::core {

KokkosStageOptions one_stage_options(const Deck& deck) {
  Deck plain = deck;
  plain.parallel = {};
  plain.schedule.name = "1f1b";
  plain.schedule.chunks = 1;
  plain.schedule.partition = {};
  plain.schedule.synchronous_updates = 0;
  plain.schedule.extra_in_flight = 0;
  return stage_options(plain, stage_layers(plain, 1), 0);
}

ScatteredTokens::ScatteredTokens(const TrainShape& shape, int vocab) : stream_(static_cast<std::size_t>(shape.rows()) + 1) {
  std::uint64_t state = 1;
  for (std::int32_t& token : stream_) {
    state = state * 6364136223846793005U + 1442695040888963407U;  // Knuth's linear congruential generator, MMIX
    token = static_cast<std::int32_t>((state >> 33) % static_cast<std::uint64_t>(vocab));
  }
}

void ScatteredTokens::batch(std::int64_t /*microbatch*/, std::int32_t* tokens, std::int32_t* targets) {
  if (tokens != nullptr) std::copy(stream_.begin(), stream_.end() - 1, tokens);
  if (targets != nullptr) std::copy(stream_.begin() + 1, stream_.end(), targets);
}

StepRunner::StepRunner(const KokkosStageOptions& options)
    : window_(options.window), tokens_(options.shape, options.model.vocab), stage_(options, tokens_) {
  stage_.set_global_squares([](const std::vector<TensorSquares>& squares) {
    double total = 0;
    for (const TensorSquares& tensor : squares) total += tensor.sum;
    return total;
  });
}

void StepRunner::step() {
  for (std::int64_t m = 0; m < window_; ++m, ++microbatch_) {
    stage_.forward(microbatch_, 0, -1, -1);
    stage_.complete_output();
    stage_.backward(microbatch_, 0, -1, -1);
    stage_.complete_output();
  }
  stage_.update(update_++);
  stage_.complete_output();
  const auto losses = stage_.take_losses();
  stage_.take_gradient_squares();
  last_loss_ = 0;
  for (const MicrobatchLoss& of : losses) last_loss_ += of.loss / static_cast<double>(losses.size());
}

}  // namespace minipipe::core
