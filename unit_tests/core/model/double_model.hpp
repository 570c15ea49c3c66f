#pragma once

#include <vector>

#include "core/model/block.hpp"
#include "core/model/embedding_layer.hpp"
#include "core/model/head_layer.hpp"

namespace minipipe::core::test {

// The layers of an unsplit model in double, wired without the stage: one microbatch, loss and gradient.
class DoubleModel {
 public:
  DoubleModel(const ModelConfig& model, const TrainShape& shape, std::uint64_t seed)
      : entries(parameter_list(model)),
        parameters("parameters", buffer_floats(entries)),
        gradients("gradients", buffer_floats(entries)),
        tokens_("tokens", shape.microbatch_size, shape.sequence),
        targets_("targets", shape.rows()),
        losses_("losses", shape.rows()),
        gradient_("gradient", shape.rows(), model.width),
        head_work_("head", shape.rows(), model.width) {
    context.model = model;
    context.shape = shape;
    context.seed = seed;
    Layout slot;
    for (int b = 0; b < model.layers; ++b) blocks_.push_back(block_activations(slot, model, shape));
    head_ = head_activations(slot, model, shape);
    slot_ = OwnedVector<double>("slot", slot.end());
    Layout work;
    work_at_ = block_gradients(work, model, shape);
    work_ = OwnedVector<double>("work", work.end());
  }

  void set_batch(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets) {
    to_device(flatten(tokens_), tokens);
    to_device(Vector<std::int32_t>(targets_), targets);
  }

  // The mean loss.
  double loss() {
    const Weights w(*this, parameters);
    embedding_layer_forward<double>(context, w.embedding, tokens_, input(0));
    for (int b = 0; b < context.model.layers; ++b) {
      block_forward<double>(context, b, w.blocks[b], blocks_[b], slot_, input(b + 1));
    }
    head_forward<double>(context, w.head, head_, slot_, targets_, losses_);
    Kokkos::fence();
    const auto host = Kokkos::create_mirror_view_and_copy(HostSpace(), losses_);
    double sum = 0;
    for (std::size_t r = 0; r < host.size(); ++r) sum += host(r);
    return sum / static_cast<double>(host.size());
  }

  // After loss(): adds its gradient to `gradients`.
  void backward() {
    const Weights w(*this, parameters);
    const Weights g(*this, gradients);
    head_backward_input<double>(context, w.head, head_, slot_, targets_, 1.0 / context.rows(), head_work_, gradient_, losses_);
    head_backward_weight<double>(context, g.head, head_, slot_, head_work_);
    for (int b = context.model.layers - 1; b >= 0; --b) {
      block_backward_input<double>(context, b, w.blocks[b], blocks_[b], slot_, work_at_, work_, gradient_);
      block_backward_weight<double>(context, g.blocks[b], blocks_[b], slot_, work_at_, work_);
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
  struct Weights {
    Weights(const DoubleModel& model, const Vector<double>& buffer) {
      const auto& entries = model.entries;
      const auto matrix = [&](std::size_t e) {
        return slice_matrix<double>(buffer, entries[e].offset, entries[e].shape[0], entries[e].shape[1]);
      };
      embedding = {matrix(0), matrix(1)};
      std::size_t next = 2;
      for (int b = 0; b < model.context.model.layers; ++b, next += block_parameters) {
        blocks.push_back(block_tensors<double>(buffer, entries, next));
      }
      head.norm_weight = slice<double>(buffer, entries[next].offset, entries[next].size);
      head.norm_bias = slice<double>(buffer, entries[next + 1].offset, entries[next + 1].size);
      head.weight = model.context.model.tied ? embedding.tokens : matrix(next + 2);
    }
    EmbeddingTensors<double> embedding;
    std::vector<BlockTensors<double>> blocks;
    HeadTensors<double> head;
  };

  template <class T>
  static void copy_in(const Vector<T>& out, const std::vector<T>& values) {
    Kokkos::deep_copy(out, Kokkos::View<const T*, Kokkos::LayoutRight, HostSpace, Unmanaged>(values.data(), values.size()));
  }

  Matrix<double> input(int block) {
    const std::size_t offset = block < context.model.layers ? blocks_[block].input : head_.input;
    return slice_matrix<double>(Vector<double>(slot_), offset, context.rows(), context.model.width);
  }

  std::vector<BlockActivations> blocks_;
  HeadActivations head_{};
  BlockGradients work_at_{};
  OwnedVector<double> slot_, work_;
  OwnedMatrix<std::int32_t> tokens_;
  OwnedVector<std::int32_t> targets_;
  OwnedVector<double> losses_;
  OwnedMatrix<double> gradient_, head_work_;
};

}  // namespace minipipe::core::test
