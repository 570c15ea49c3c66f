#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/model/stage_implementation.hpp"
#include "core/model/weight_copies.hpp"

namespace minipipe::core {

// The passes of a KokkosStage whose activations, their gradients, weight matrices and messages are of type T: float or bf16.
template <class T>
class KokkosStage::Passes : public KokkosStage::Implementation {
 public:
  Passes(const KokkosStageOptions& given, BatchSource& batches);

  void run_forward(BatchSource& from, int slot, int input, int output, int version) override;
  void run_backward_input(int slot, int gradient_input, int gradient_output, bool whole, int version) override;
  void run_backward_weight(int slot) override;
  std::size_t copies_bytes() const override { return copies_.bytes(); }
  std::span<const Vector<bf16>> newest_copies() const override { return copies_.newest(); }
  void newest_copied() override { copies_.newest_copied(); }

 private:
  // The order in which a pass needs the layers' weights. A sharded replica has each gathered while the one before it computes.
  class Fetches {
   public:
    Fetches(Passes& passes, std::vector<int> order) : passes_(passes), order_(std::move(order)) {}
    void next() {
      if (!passes_.sharded()) return;
      passes_.exchange->fetch(order_.at(at_), at_ + 1 < order_.size() ? order_[at_ + 1] : -1);
      passes_.copies_.copy_layer(passes_.space, order_[at_]);
      ++at_;
    }

   private:
    Passes& passes_;
    std::vector<int> order_;
    std::size_t at_ = 0;
  };
  Fetches forward_fetches();
  Fetches backward_fetches();

  void run_full_forward(BatchSource& from, int input, int output) override;
  StageTensors<T> assembled(int layer);

  // The tensors of that version, their copies being up to date.
  const StageTensors<T>& weights(int version);

  Matrix<T> message(const Matrix<float>& memory, int slot) const {
    const std::size_t offset = static_cast<std::size_t>(slot) * memory.extent(1);
    return matrix_in<T>(flatten(memory), offset, rows(), options.model.width);
  }
  Vector<float> workspace(int slot) const { return workspaces.slot(options.split_backward ? slot : 0); }
  BlockMemory<T> memory(int slot) const { return {activations.slot(slot), workspace(slot), scratch, rows()}; }
  Matrix<T> running_gradient(int slot) const {
    return matrix_in<T>(workspace(slot), layout.gradient, rows(), options.model.width);
  }
  Matrix<T> input_of(int block, int slot, int output) const;

  void head_weight(int slot);
  void block_weight(int b, int slot);
  void embedding_weight(int slot);

  WeightCopies<T> copies_;
  std::vector<StageTensors<T>> weights_;  // by number of the array in `versions`
};

}  // namespace minipipe::core
