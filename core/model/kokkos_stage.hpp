#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/model/batch_source.hpp"
#include "core/model/parameter_store.hpp"
#include "core/model/stage_options.hpp"
#include "core/model/weight_versions.hpp"
#include "schedules/exec/stage.hpp"

namespace minipipe::core {

// Sums of squares of the gradients (of the window's mean loss, before clipping) at one update, one per parameter tensor, in
// the order of ParameterStore::entries().
struct GradientSquares {
  std::int64_t update = 0;
  std::vector<double> squares;
};

using MicrobatchLoss = std::pair<std::int64_t, double>;  // microbatch, mean loss per token in nats

// A contiguous run of a model's layers with its parameters, gradients, optimizer state and activation slots.
// All memory is allocated by the constructor. Work is enqueued on one execution-space instance; the host waits only in
// complete_output(), update() (for the sums of squares), take_losses() and evaluate() on the last stage.
// With recomputation a backward computes what it needs again with its own weights: under schedules that update between forward
// and backward and do not keep old weights, the activations then are those of the backward's weights.
// Results do not depend on how the model is split, to the last bit, as long as microbatches come in ascending order.
class KokkosStage : public schedules::Stage {
 public:
  // `source` is kept by reference and must outlive the stage. Throws InputError for impossible models, RunError if message
  // memory does not fit.
  KokkosStage(const KokkosStageOptions& options, BatchSource& source);
  ~KokkosStage() override;

  void forward(std::int64_t microbatch, int slot, int input, int output) override;
  void backward(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override;
  // The halves apart need options.split_backward; otherwise they throw RunError.
  void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override;
  void backward_weight(std::int64_t microbatch, int slot) override;
  void update(std::int64_t update) override;
  void complete_output() override;

  // A forward without dropout that keeps nothing, with tokens of `source`. Uses activation slot 0: nothing may be in flight.
  // The last stage adds its mean loss to the evaluation losses and, if `token_losses` is given, sets it to the loss of each
  // token of the microbatch.
  void evaluate(std::int64_t microbatch, BatchSource& source, int input, int output,
                std::vector<float>* token_losses = nullptr);

  // Mean losses of the microbatches since the last call, in the order of their forwards; empty except on the last stage.
  std::vector<MicrobatchLoss> take_losses();
  std::vector<MicrobatchLoss> take_evaluation_losses();

  // Of the updates since the last call.
  std::vector<GradientSquares> take_gradient_squares();

  // For Clip::global: is given this stage's sums of squares (by entry) at each update and returns the sum over all tensors of
  // all stages, added in the order of global indices. Must be set before the first update.
  void set_global_squares(std::function<double(const std::vector<double>& squares)> combine);

  ParameterStore& parameters();
  const ParameterStore& parameters() const;
  // Older weights and other state of the weight rule, for checkpoints; after a resume its start_at() must be called.
  WeightVersions& versions();
  const WeightVersions& versions() const;
  const KokkosStageOptions& options() const;
  // Of AdamW or NAdam at update `update`, PipeMare's division included; Muon's is in the fixed ratio of the two peaks to it.
  double learning_rate_at(std::int64_t update) const;

  // Bytes of the memory this object holds, read from its arrays.
  StageBytes bytes() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace minipipe::core
