#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/kernels/reduce.hpp"
#include "core/model/activation_arena.hpp"
#include "core/model/kokkos_stage.hpp"
#include "core/model/loss_record.hpp"
#include "core/model/stage_layout.hpp"
#include "core/model/stage_tensors.hpp"
#include "core/optim/muon.hpp"

namespace minipipe::core {

// What of a KokkosStage does not depend on the type in which activations are stored; the passes do, see stage_passes.hpp. The
// update is in a file of its own.
class KokkosStage::Implementation {
 public:
  Implementation(const KokkosStageOptions& given, BatchSource& batches);
  virtual ~Implementation() = default;

  // Passes: of the microbatch that begin() named, by its number on this replica, with the weights of number `version` in
  // `versions`.
  void begin(std::int64_t microbatch, bool training);
  virtual void run_forward(BatchSource& from, int slot, int input, int output, int version) = 0;
  // `whole`: each layer's weight half follows its input half at once, so that the layers can share one workspace.
  virtual void run_backward_input(int slot, int gradient_input, int gradient_output, bool whole, int version) = 0;
  virtual void run_backward_weight(int slot) = 0;

  MicrobatchLoss evaluate(std::int64_t microbatch, BatchSource& from, int input, int output);

  void update(std::int64_t update, double rate);
  double gradient_scale(const std::vector<int>& replicas, std::int64_t update) const;

  const StageLayers& layers() const { return options.layers; }
  int rows() const { return options.shape.rows(); }
  // Of the copies of weights in the type in which activations are stored.
  virtual std::size_t copies_bytes() const = 0;

  const KokkosStageOptions options;
  BatchSource& source;
  ExecutionSpace space;
  const StageLayout layout;
  ParameterStore store;
  WeightVersions versions;
  const StageTensors<float> gradients;
  const MuonMemory<float> muon_memory;
  ActivationArena activations;
  SlotArena<std::int32_t> integers;
  OwnedHostVector<std::int32_t> host_integers;
  ActivationArena workspaces;
  OwnedVector<float> scratch;
  OwnedVector<float> evaluation_memory;
  OwnedVector<double> rotary;
  OwnedVector<float> token_losses;
  LossRecord losses;
  std::vector<int> square_tensors;                    // global_index, by piece
  std::vector<SquareRectangle<float>> square_pieces;  // of the gradients that this replica counts in norms
  OwnedVector<double> sum_workspace, squares;
  OwnedHostVector<double> host_squares;
  LayerContext context;
  LayerExchange* exchange = nullptr;
  std::int64_t counted = 0;  // targets of the last batch that are counted; on the last stage
  std::vector<MicrobatchLoss> evaluation_losses;
  std::vector<GradientSquares> squares_taken;
  std::function<double(const std::vector<TensorSquares>&)> combine_squares;

 protected:
  // Where an update can write the newest weights in the type that passes multiply with, by tensor; no list: nowhere.
  virtual std::span<const Vector<bf16>> newest_copies() const { return {}; }
  virtual void newest_copied() {}
  // The full model's layers from their holders.
  virtual void run_full_forward(BatchSource& from, int input, int output) = 0;

  bool sharded() const { return options.replication.sharded(); }
  bool tied_head() const { return options.model.tied && layers().head && layers().embedding; }
  void progress() {
    if (exchange != nullptr) exchange->progress();
  }
  void gradient_begins(int layer) {
    if (sharded()) {
      exchange->gradient_begins(layer);
      return;
    }
    const auto number = static_cast<std::size_t>(layer);
    context.fresh_gradients = fresh_gradients_[number];
    fresh_gradients_[number] = false;
  }
  void gradient_done(int layer, bool last);
  bool last_of_window() const { return (microbatch_ + 1) % options.window == 0; }

  ConstMatrix<std::int32_t> tokens(int slot) const {
    return slice_matrix<std::int32_t>(integers.slot(slot), layout.tokens, options.shape.microbatch_size,
                                      options.shape.sequence);
  }
  ConstVector<std::int32_t> targets(int slot) const { return slice<std::int32_t>(integers.slot(slot), layout.targets, rows()); }
  void load_batch(BatchSource& from, int slot);

 private:
  bool assembles() const { return options.replication.sdp() && exchange != nullptr; }

  // Waits for them.
  std::vector<TensorSquares> read_squares(double scale);
  // Range p of the optimizer is tensor p, and whole: the update can do more in its pass.
  bool ranges_are_tensors() const;
  // The optimizer's pass writes newest_copies(), too. An exchange has other copies to keep.
  bool step_writes_copies() const { return exchange == nullptr && ranges_are_tensors(); }
  double clip_factor(const std::vector<TensorSquares>& mine);
  void clear_gradients();
  // Of a window's gradients. `with_squares`: it writes `squares`, too.
  void optimizer_step(double rate, std::int64_t step, double factor, bool with_squares);
  double unreduced_scale(std::int64_t update) const;

  std::int64_t microbatch_ = 0;  // on this replica
  // By layer: no backward since the last update. Of sharded replicas nothing is overwritten.
  std::vector<bool> fresh_gradients_;
  std::vector<Vector<float>> added_gradients_;
};

}  // namespace minipipe::core
