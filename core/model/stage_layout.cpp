#include "core/model/stage_layout.hpp"

#include <algorithm>

#include "core/kernels/reduce.hpp"
#include "core/model/optimizer_layout.hpp"
#include "core/model/parameter_store.hpp"
#include "core/model/planned_memory.hpp"
#include "core/model/replica_layout.hpp"
#include "core/model/replica_shares.hpp"
#include "core/model/weight_copies.hpp"
#include "core/model/weight_versions.hpp"

namespace minipipe::core {

namespace {

constexpr std::size_t losses_kept = 64;

BlockLayout empty_layout(Precision precision) {
  BlockLayout layout;
  if (precision == Precision::bf16) layout.per_wide = elements_per_wide<bf16>;
  return layout;
}

// A sharded tied head cannot compute them again: it never has its norm and its matrix at the same time.
HeadLogits head_logits(const KokkosStageOptions& options, bool whole) {
  const bool apart = options.model.tied && options.layers.embedding && options.replication.sharded();
  return whole && !apart ? HeadLogits::again : HeadLogits::kept;
}

}  // namespace

StageLayout::StageLayout(const KokkosStageOptions& options)
    : StageLayout(options, ReplicaLayout(options.model, options.layers, options.replication)) {}

StageLayout::StageLayout(const KokkosStageOptions& options, const ReplicaLayout& replica)
    : shares(block_shares(options.model, options.layers, replica)),
      whole_blocks(options.recompute == Recompute::block && !options.split_backward) {
  const ModelConfig& model = options.model;
  const TrainShape& shape = options.shape;
  const StageLayers& layers = options.layers;
  const std::size_t rows = shape.rows();

  Layout integers;
  if (layers.embedding) tokens = integers.take(rows);
  if (layers.head) targets = integers.take(rows);
  slot_integers = integers.end();

  BlockLayout layout = empty_layout(options.precision);
  if (layers.embedding) gradient = layout.take(Lifetime::pending, rows * model.width).offset;
  const Layout shared = layout.workspace;
  const auto next_layer = [&] {
    workspace_floats = std::max(workspace_floats, layout.workspace.end());
    scratch_floats = std::max(scratch_floats, layout.scratch.end());
    if (!options.split_backward) layout.workspace = shared;
    layout.scratch = {};
  };
  for (int b = 0; b < layers.blocks; ++b) {
    if (whole_blocks) {
      const BlockPlaces places = whole_block_places(layout, model, shape, shares[b]);
      blocks.push_back(places.activations);
      block_gradients.push_back(places.gradients);
    } else {
      blocks.push_back(block_activations(layout, model, shape, options.recompute, shares[b]));
      block_gradients.push_back(core::block_gradients(layout, model, shape, shares[b]));
    }
    next_layer();
  }
  if (layers.head) {
    head = head_activations(layout, model, shape, head_logits(options, whole_blocks));
    head_gradient = core::head_gradient(layout, model, shape);
  }
  next_layer();
  slot_floats = layout.slot.end();
  if (options.split_backward) workspaces = options.activation_slots;
  if (options.replication.sdp()) plan_evaluation(options);
  if (layers.blocks > 0 && architecture(model).rotary) {
    rotary = static_cast<std::size_t>(shape.sequence) * head_size(model);
  }

  const auto owned = owned_square_pieces(replica);
  for (const TensorPiece& part : owned) sum_workspace += static_cast<std::size_t>(core::sum_workspace(part.piece.floats()));
  if (layers.head) {
    token_losses = rows;
    loss_capacity = losses_kept;
    sum_workspace = std::max(sum_workspace, static_cast<std::size_t>(core::sum_workspace(static_cast<std::int64_t>(rows))));
  }
  squares = owned.size();
}

void StageLayout::plan_evaluation(const KokkosStageOptions& options) {
  const TrainShape& shape = options.shape;
  const bool again = options.recompute == Recompute::block;
  BlockLayout block = empty_layout(options.precision), last = block;
  if (options.layers.blocks > 0) {
    evaluation_block = block_activations(block, options.model, shape, again ? Recompute::block : Recompute::none);
  }
  if (options.layers.head) {
    // Its input is where the blocks' is: both are first.
    evaluation_head = head_activations(last, options.model, shape, again ? HeadLogits::again : HeadLogits::once);
  }
  for (const BlockLayout& layout : {block, last}) {
    workspace_floats = std::max(workspace_floats, layout.workspace.end());
    scratch_floats = std::max(scratch_floats, layout.scratch.end());
  }
  evaluation_floats = std::max(block.slot.end(), last.slot.end());
  const std::size_t slots = static_cast<std::size_t>(options.activation_slots) * slot_floats;
  evaluation_memory = evaluation_floats > slots ? evaluation_floats : 0;
}

std::int64_t message_floats(const ModelConfig& model, const TrainShape& shape, Precision precision) {
  const std::int64_t numbers = static_cast<std::int64_t>(shape.rows()) * model.width;
  return precision == Precision::bf16 ? (numbers + 1) / 2 : numbers;
}

StageBytes planned_memory(const KokkosStageOptions& options) {
  return planned_memory(options, ReplicaLayout(options.model, options.layers, options.replication));
}

StageBytes planned_memory(const KokkosStageOptions& options, const ReplicaLayout& replica) {
  const StageLayout layout(options, replica);
  const OptimizerLayout optimizer(replica, options.optimizer, OptimizerRanges::none);
  const ParameterBytes stored = planned_parameter_bytes(replica, optimizer);
  StageBytes bytes;
  bytes.parameters = stored.parameters;
  bytes.gradients = stored.gradients;
  bytes.optimizer = stored.optimizer + muon_memory_bytes<float>(optimizer.matrices);
  bytes.weight_versions = static_cast<std::size_t>(extra_weight_buffers(options)) *
                          static_cast<std::size_t>(replica.parameter_floats) * sizeof(float);
  if (options.precision == Precision::bf16) bytes.weight_versions += planned_copies_bytes(replica, weight_arrays(options));
  const auto slots = static_cast<std::size_t>(options.activation_slots);
  const std::size_t floats = slots * layout.slot_floats +
                             static_cast<std::size_t>(layout.workspaces) * layout.workspace_floats + layout.scratch_floats +
                             layout.evaluation_memory + layout.token_losses;
  const std::size_t doubles =
      (layout.loss_capacity > 0 ? layout.loss_capacity + 1 : 0) + layout.squares + layout.sum_workspace + layout.rotary;
  bytes.activations = floats * sizeof(float) + slots * layout.slot_integers * sizeof(std::int32_t) + doubles * sizeof(double);
  return bytes;
}

}  // namespace minipipe::core
