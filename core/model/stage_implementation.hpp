#pragma once

#include <functional>
#include <vector>

#include "core/model/activation_arena.hpp"
#include "core/model/kokkos_stage.hpp"
#include "core/model/loss_record.hpp"
#include "core/model/stage_layout.hpp"
#include "core/model/stage_tensors.hpp"
#include "core/optim/muon.hpp"

namespace minipipe::core {

// What a KokkosStage does; passes, evaluation and update are in files of their own.
class KokkosStage::Implementation {
 public:
  Implementation(const KokkosStageOptions& given, BatchSource& batches);

  // Passes: of the microbatch that begin() named, by its number on this replica.
  void begin(std::int64_t microbatch, bool training);
  void run_forward(BatchSource& from, int slot, int input, int output, const StageTensors<float>& with);
  // `whole`: each layer's weight half follows its input half at once, so that the layers can share one workspace.
  void run_backward_input(int slot, int gradient_input, int gradient_output, bool whole, const StageTensors<float>& with);
  void run_backward_weight(int slot);

  MicrobatchLoss evaluate(std::int64_t microbatch, BatchSource& from, int input, int output);

  void update(std::int64_t update, double rate);
  double gradient_scale(const std::vector<int>& replicas, std::int64_t update) const;

  const StageLayers& layers() const { return options.layers; }
  int rows() const { return options.shape.rows(); }

  const KokkosStageOptions options;
  BatchSource& source;
  ExecutionSpace space;
  const StageLayout layout;
  ParameterStore store;
  WeightVersions versions;
  std::vector<StageTensors<float>> weights;  // by number of the array in `versions`
  const StageTensors<float> gradients;
  const MuonMemory<float> muon_memory;
  ActivationArena activations;
  SlotArena<std::int32_t> integers;
  OwnedVector<std::int32_t>::HostMirror host_integers;
  ActivationArena workspaces;
  OwnedVector<float> scratch;
  OwnedVector<float> evaluation_memory;
  OwnedVector<double> rotary;
  OwnedVector<float> token_losses;
  LossRecord losses;
  std::vector<SquarePart> square_parts;
  OwnedVector<double> sum_workspace, squares;
  OwnedVector<double>::HostMirror host_squares;
  LayerContext context;
  LayerExchange* exchange = nullptr;
  std::int64_t counted = 0;  // targets of the last batch that are counted; on the last stage
  std::vector<MicrobatchLoss> evaluation_losses;
  std::vector<GradientSquares> squares_taken;
  std::function<double(const std::vector<TensorSquares>&)> combine_squares;

 private:
  // The order in which a pass needs the layers' weights. A sharded replica has each gathered while the one before it computes.
  class Fetches {
   public:
    Fetches(LayerExchange* exchange, std::vector<int> order) : exchange_(exchange), order_(std::move(order)) {}
    void next() {
      if (exchange_ == nullptr) return;
      exchange_->fetch(order_.at(at_), at_ + 1 < order_.size() ? order_[at_ + 1] : -1);
      ++at_;
    }

   private:
    LayerExchange* exchange_;
    std::vector<int> order_;
    std::size_t at_ = 0;
  };
  Fetches forward_fetches() const;
  Fetches backward_fetches() const;

  bool sharded() const { return options.replication.sharded(); }
  bool tied_head() const { return options.model.tied && layers().head && layers().embedding; }
  void progress() {
    if (exchange != nullptr) exchange->progress();
  }
  void gradient_begins(int layer) {
    if (sharded()) exchange->gradient_begins(layer);
  }
  void gradient_done(int layer, bool last);
  bool last_of_window() const { return (microbatch_ + 1) % options.window == 0; }

  Matrix<float> message(const Matrix<float>& memory, int slot) const {
    return Matrix<float>(memory.data() + static_cast<std::size_t>(slot) * memory.extent(1), rows(), options.model.width);
  }
  ConstMatrix<std::int32_t> tokens(int slot) const {
    return slice_matrix<std::int32_t>(integers.slot(slot), layout.tokens, options.shape.microbatch_size,
                                      options.shape.sequence);
  }
  ConstVector<std::int32_t> targets(int slot) const { return slice<std::int32_t>(integers.slot(slot), layout.targets, rows()); }
  Vector<float> workspace(int slot) const { return workspaces.slot(options.split_backward ? slot : 0); }
  BlockMemory<float> memory(int slot) const { return {activations.slot(slot), workspace(slot), scratch, rows()}; }
  Matrix<float> running_gradient(int slot) const {
    return slice_matrix<float>(workspace(slot), layout.gradient, rows(), options.model.width);
  }
  Matrix<float> input_of(int block, int slot, int output) const;

  void load_batch(BatchSource& from, int slot);
  void head_weight(int slot);
  void block_weight(int b, int slot);
  void embedding_weight(int slot);

  // The full model's layers from their holders.
  void run_full_forward(BatchSource& from, int input, int output);
  StageTensors<float> assembled(int layer);
  bool assembles() const { return options.replication.sdp() && exchange != nullptr; }

  std::vector<TensorSquares> gradient_squares(double scale);
  double clip_factor(const std::vector<TensorSquares>& mine);
  void optimizer_step(double rate, std::int64_t step, double factor);
  double unreduced_scale(std::int64_t update) const;

  std::int64_t microbatch_ = 0;  // on this replica
};

}  // namespace minipipe::core
