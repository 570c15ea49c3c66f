#pragma once

#include <algorithm>
#include <vector>

#include "core/kernels/rotary.hpp"
#include "core/model/stage_tensors.hpp"

namespace minipipe::core::test {

// The layers of an unsplit model in double, wired without the stage: one microbatch, loss and gradient.
class DoubleModel {
 public:
  DoubleModel(const ModelConfig& model, const TrainShape& shape, std::uint64_t seed, Recompute recompute = Recompute::none)
      : entries(parameter_list(model)),
        parameters("parameters", buffer_floats(entries)),
        gradients("gradients", buffer_floats(entries)),
        tokens_("tokens", shape.microbatch_size, shape.sequence),
        targets_("targets", shape.rows()),
        losses_("losses", shape.rows()),
        gradient_("gradient", shape.rows(), model.width) {
    context.model = model;
    context.shape = shape;
    context.seed = seed;
    if (architecture(model).rotary) {
      rotary_ = OwnedMatrix<double>("rotary", shape.sequence, head_size(model));
      rotary_table(context.space, rotary_, rotary_base);
      context.rotary = rotary_;
    }
    BlockLayout layout;
    std::size_t work = 0, scratch = 0;
    for (int b = 0; b < model.layers; ++b) {
      layout.workspace = layout.scratch = {};
      const BlockShare share = full_share(model, b);
      blocks_.push_back(block_activations(layout, model, shape, recompute, share));
      work_at_.push_back(block_gradients(layout, model, shape, share));
      work = std::max(work, layout.workspace.end());
      scratch = std::max(scratch, layout.scratch.end());
    }
    layout.workspace = {};
    head_ = head_activations(layout, model, shape);
    head_work_ = head_gradient(layout, model, shape);
    slot_ = OwnedVector<double>("slot", layout.slot.end());
    work_ = OwnedVector<double>("work", std::max(work, layout.workspace.end()));
    scratch_ = OwnedVector<double>("scratch", scratch);
  }

  void set_batch(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets) {
    to_device(flatten(tokens_), tokens);
    to_device(Vector<std::int32_t>(targets_), targets);
  }

  // The mean loss.
  double loss() {
    const StageTensors<double> w = tensors(parameters);
    embedding_layer_forward<double>(context, w.embedding, tokens_, input(0));
    for (int b = 0; b < context.model.layers; ++b) {
      block_forward<double>(context, b, w.blocks[b], blocks_[b], memory(), input(b + 1));
    }
    head_forward<double>(context, w.head, head_, memory(), targets_, losses_);
    double sum = 0;
    for (const double loss : token_losses()) sum += loss;
    return sum / static_cast<double>(context.rows());
  }

  // Of the last forward.
  std::vector<double> token_losses() const {
    Kokkos::fence();
    return to_host(losses_);
  }

  // After loss(): adds its gradient to `gradients`.
  void backward() {
    const StageTensors<double> w = tensors(parameters), g = tensors(gradients);
    head_backward_input<double>(context, w.head, head_, head_work_, memory(), targets_, 1.0 / context.rows(), gradient_,
                                losses_);
    head_backward_weight<double>(context, g.head, head_, head_work_, memory());
    for (int b = context.model.layers - 1; b >= 0; --b) {
      block_backward_input<double>(context, b, w.blocks[b], blocks_[b], work_at_[b], memory(), gradient_);
      block_backward_weight<double>(context, g.blocks[b], blocks_[b], work_at_[b], memory());
    }
    embedding_layer_backward_weight<double>(context, g.embedding, tokens_, gradient_);
    Kokkos::fence();
  }

  static void to_device(const Vector<double>& out, const std::vector<double>& values) { copy_in(out, values); }
  static void to_device(const Vector<std::int32_t>& out, const std::vector<std::int32_t>& values) { copy_in(out, values); }
  static std::vector<double> to_host(const Vector<double>& in) {
    std::vector<double> values(in.size());
    Kokkos::deep_copy(Kokkos::View<double*, Kokkos::LayoutRight, HostSpace, Unmanaged>(values.data(), values.size()), in);
    return values;
  }

  LayerContext context;
  std::vector<ParameterEntry> entries;
  OwnedVector<double> parameters, gradients;

 private:
  StageTensors<double> tensors(const Vector<double>& buffer) const {
    return {buffer, entries, context.model, {true, 0, context.model.layers, true}};
  }
  BlockMemory<double> memory() const { return {slot_, work_, scratch_, context.rows()}; }

  template <class T>
  static void copy_in(const Vector<T>& out, const std::vector<T>& values) {
    Kokkos::deep_copy(out, Kokkos::View<const T*, Kokkos::LayoutRight, HostSpace, Unmanaged>(values.data(), values.size()));
  }

  Matrix<double> input(int block) const {
    return memory().matrix(block < context.model.layers ? blocks_[block].input() : head_.input, context.model.width);
  }

  std::vector<BlockActivations> blocks_;
  std::vector<BlockGradients> work_at_;
  HeadActivations head_{};
  Place head_work_{};
  OwnedVector<double> slot_, work_, scratch_;
  OwnedMatrix<std::int32_t> tokens_;
  OwnedVector<std::int32_t> targets_;
  OwnedVector<double> losses_;
  OwnedMatrix<double> gradient_, rotary_;
};

}  // namespace minipipe::core::test
