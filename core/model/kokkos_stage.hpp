#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/model/batch_source.hpp"
#include "core/model/layer_exchange.hpp"
#include "core/model/microbatch_loss.hpp"
#include "core/model/parameter_store.hpp"
#include "core/model/replica_layout.hpp"
#include "core/model/stage_options.hpp"
#include "core/model/tensor_squares.hpp"
#include "core/model/weight_versions.hpp"
#include "schedules/exec/stage.hpp"

namespace minipipe::core {

// The sums of squares of the gradients (of the mean loss of the update's counted tokens, before clipping) at one update, of
// what this replica owns: each parameter belongs to one replica.
struct GradientSquares {
  std::int64_t update = 0;
  std::vector<TensorSquares> squares;  // in ascending order of tensors
};

// A contiguous run of a model's layers with its parameters, gradients, optimizer state and activation slots.
// All memory is allocated by the constructor. Work is enqueued on one execution-space instance; the host waits only in
// complete_output(), update() (for the sums of squares), take_losses() and evaluate() on the last stage; under sharding and in
// evaluations under SDP also in passes, for other replicas' parts of a layer.
// With recomputation a backward computes what it needs again with its own weights: under schedules that update between forward
// and backward and do not keep old weights, the activations then are those of the backward's weights.
// Results do not depend on how the model is split, to the last bit, as long as microbatches come in ascending order.
//
// As one replica of several (KokkosStageOptions::replication) it computes and trains its share of each block. Microbatch
// numbers of its calls are its own, 0, 1, 2 ...; data, dropout and losses know them by their numbers over all replicas. What is
// shared travels through a LayerExchange. Without one a replica that is not sharded works alone.
class KokkosStage : public schedules::Stage {
 public:
  // `source` is kept by reference and must outlive the stage. Throws InputError for impossible models, RunError if message
  // memory does not fit.
  KokkosStage(const KokkosStageOptions& options, BatchSource& source);
  ~KokkosStage() override;

  // Kept by reference; once, before the first pass. A sharded replica throws RunError at its first pass without one.
  void attach(LayerExchange& exchange);

  void forward(std::int64_t microbatch, int slot, int input, int output) override;
  void backward(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override;
  // The halves apart need options.split_backward; otherwise they throw RunError.
  void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) override;
  void backward_weight(std::int64_t microbatch, int slot) override;
  void update(std::int64_t update) override;
  bool gradients_ready(std::int64_t update) override;
  bool weights_ready() override;
  void complete_output() override;

  // A forward without dropout that keeps nothing, with tokens of `source`; under SDP of the full model, whose layers are
  // assembled from their holders (RunError without an exchange if something is not held). Uses the activation slots: nothing
  // may be in flight. The last stage adds its mean loss to the evaluation losses and, if `token_losses` is given, sets it to
  // the loss of each token of the microbatch.
  void evaluate(std::int64_t microbatch, BatchSource& source, int input, int output,
                std::vector<float>* token_losses = nullptr);

  // Mean losses of the microbatches since the last call, in the order of their forwards; empty except on the last stage.
  std::vector<MicrobatchLoss> take_losses();
  std::vector<MicrobatchLoss> take_evaluation_losses();

  // Of the updates since the last call.
  std::vector<GradientSquares> take_gradient_squares();

  // For Clip::global: is given the sums of squares that this replica of the stage owns at each update and returns the sum over
  // all tensors of all stages and replicas, added in the order of global indices, then replicas. Must be set before the first
  // update.
  void set_global_squares(std::function<double(const std::vector<TensorSquares>& squares)> combine);

  // The factor that turns the sum of these replicas' gradients of update `update` into the gradient of the mean loss of all
  // tokens that they count: 1 / replicas if all count as many. For the exchange's reduction.
  double gradient_scale(const std::vector<int>& replicas, std::int64_t update) const;

  ParameterStore& parameters();
  const ParameterStore& parameters() const;
  // Older weights and other state of the weight rule, for checkpoints; after a resume its start_at() must be called.
  WeightVersions& versions();
  const WeightVersions& versions() const;
  const KokkosStageOptions& options() const;
  const ReplicaLayout& replica_layout() const;
  // Everything is enqueued on this one.
  const ExecutionSpace& space() const;
  // Of AdamW or NAdam at update `update`, PipeMare's division included; Muon's is in the fixed ratio of the two peaks to it.
  double learning_rate_at(std::int64_t update) const;

  // Bytes of the memory this object holds, read from its arrays.
  StageBytes bytes() const;

 private:
  class Implementation;
  template <class T>
  class Passes;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace minipipe::core
