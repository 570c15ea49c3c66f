#include "core/model/attention_branch.hpp"

#include "core/kernels/attention.hpp"
#include "core/kernels/rotary.hpp"

namespace minipipe::core {

namespace {

struct QkvWidths {
  int maps = 0;
  QkvMaps<int> width{};
};

QkvWidths qkv_widths(const ModelConfig& model) {
  if (architecture(model).fused_qkv) return {1, {3 * model.width}};
  return {3, {model.width, kv_width(model), kv_width(model)}};
}

AttentionShape attention_shape(const LayerContext& context) {
  return {context.shape.microbatch_size, context.shape.sequence, context.model.heads, kv_heads(context.model)};
}

std::int64_t logsumexp_size(const ModelConfig& model, const TrainShape& shape) {
  return static_cast<std::int64_t>(shape.rows()) * model.heads;
}

template <class T>
Qkv<T> qkv_of(const LayerContext& context, const QkvMaps<Place>& places, const BlockMemory<T>& memory) {
  const QkvWidths z = qkv_widths(context.model);
  const auto matrix = [&](int map) { return memory.matrix(places[map], z.width[map]); };
  if (z.maps == 1) return split_qkv<T>(matrix(0));
  return {columns_of<T>(matrix(0)), columns_of<T>(matrix(1)), columns_of<T>(matrix(2))};
}

template <class T>
Matrix<Compute<T>> query_sums(const AttentionGradients& work, const BlockMemory<T>& memory, int width) {
  if constexpr (std::is_same_v<T, Compute<T>>) return {};
  return memory.wide_matrix(work.query_sums, width);
}

// Queries and keys turn to their positions, or back.
template <class T>
void rotate(const LayerContext& context, const QkvMaps<Place>& places, const BlockMemory<T>& memory, bool inverse) {
  if (!architecture(context.model).rotary) return;
  const QkvWidths z = qkv_widths(context.model);
  for (int map = 0; map < 2; ++map) {
    rotary_apply<T>(context.space, memory.matrix(places[map], z.width[map]), context.rotary, context.shape.sequence, inverse);
  }
}

}  // namespace

template <class T>
AttentionTensors<T> attention_tensors(TensorCursor<T>& next) {
  AttentionTensors<T> tensors;
  tensors.norm = next.norm();
  const int maps = next.kind().fused_qkv ? 1 : most_qkv_maps;
  for (int map = 0; map < maps; ++map) tensors.qkv[map] = next.linear();
  tensors.projection = next.linear();
  return tensors;
}

AttentionActivations attention_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                           Recompute recompute) {
  const std::size_t rows = shape.rows();
  const auto [until_weights, until_inputs] = backward_lifetimes(recompute != Recompute::none);
  AttentionActivations at;
  at.input = layout.take(Lifetime::kept, rows * model.width);
  at.norm = norm_places(layout, until_weights, model, shape);
  const QkvWidths z = qkv_widths(model);
  for (int map = 0; map < z.maps; ++map) at.qkv[map] = layout.take(until_inputs, rows * z.width[map]);
  at.context = layout.take(until_weights, rows * model.width);
  at.logsumexp = layout.take_wide(until_inputs, logsumexp_size(model, shape));
  return at;
}

AttentionGradients attention_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape) {
  const std::size_t rows = shape.rows();
  AttentionGradients at;
  at.norm = layout.take(Lifetime::pending, rows * model.width);
  const QkvWidths z = qkv_widths(model);
  for (int map = 0; map < z.maps; ++map) at.qkv[map] = layout.take(Lifetime::pending, rows * z.width[map]);
  at.projection = layout.take(Lifetime::pending, rows * model.width);
  if (layout.per_wide > 1) at.query_sums = layout.take_wide(Lifetime::passing, rows * model.width);
  return at;
}

template <class T>
void attention_activate(const LayerContext& context, int block, const AttentionTensors<T>& weights,
                        const AttentionActivations& at, const BlockMemory<T>& memory) {
  const int width = context.model.width;
  norm_forward<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, width));
  const QkvWidths z = qkv_widths(context.model);
  for (int map = 0; map < z.maps; ++map) {
    linear_forward<T>(context.space, memory.matrix(at.qkv[map], z.width[map]), memory.matrix(at.norm.out, width),
                      weights.qkv[map].weight, weights.qkv[map].bias);
  }
  rotate<T>(context, at.qkv, memory, false);
  attention_forward<T>(context.space, memory.matrix(at.context, width),
                       memory.vector(at.logsumexp, logsumexp_size(context.model, context.shape)),
                       qkv_of<T>(context, at.qkv, memory), attention_shape(context), context.dropout(attention_dropout(block)));
}

template <class T>
void attention_branch_forward(const LayerContext& context, int block, const AttentionTensors<T>& weights,
                              const AttentionActivations& at, const BlockMemory<T>& memory, Matrix<T> out) {
  const int width = context.model.width;
  attention_activate<T>(context, block, weights, at, memory);
  linear_forward<T>(context.space, out, memory.matrix(at.context, width), weights.projection.weight, weights.projection.bias);
  dropout_residual_add<T>(context.space, flatten(out), flatten(memory.matrix(at.input, width)),
                          context.dropout(attention_residual_dropout(block)));
}

template <class T>
void attention_branch_backward_input(const LayerContext& context, int block, const AttentionTensors<T>& weights,
                                     const AttentionActivations& at, const AttentionGradients& work,
                                     const BlockMemory<T>& memory, Matrix<T> gradient) {
  const ExecutionSpace& space = context.space;
  const int width = context.model.width;
  const Matrix<T> projection = memory.matrix(work.projection, width);
  dropout<T>(space, flatten(projection), flatten(gradient), context.dropout(attention_residual_dropout(block)));
  // The gradient of attention's output lives where that of the norm's output comes afterwards.
  const Matrix<T> norm_gradient = memory.matrix(work.norm, width);
  linear_backward_input<T>(space, norm_gradient, projection, weights.projection.weight);
  attention_backward<T>(space, qkv_of<T>(context, work.qkv, memory), norm_gradient, qkv_of<T>(context, at.qkv, memory),
                        memory.matrix(at.context, width),
                        memory.vector(at.logsumexp, logsumexp_size(context.model, context.shape)), attention_shape(context),
                        context.dropout(attention_dropout(block)), query_sums<T>(work, memory, width));
  rotate<T>(context, work.qkv, memory, true);
  const QkvWidths z = qkv_widths(context.model);
  for (int map = 0; map < z.maps; ++map) {
    linear_backward_input<T>(space, norm_gradient, memory.matrix(work.qkv[map], z.width[map]), weights.qkv[map].weight,
                             map > 0);
  }
  norm_backward_input<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, width), norm_gradient, gradient, true);
}

template <class T>
void attention_branch_backward_weight(const LayerContext& context, const AttentionTensors<Compute<T>>& gradients,
                                      const AttentionActivations& at, const AttentionGradients& work,
                                      const BlockMemory<T>& memory) {
  const int width = context.model.width;
  linear_backward_weight<T>(context.space, gradients.projection.weight, gradients.projection.bias,
                            memory.matrix(work.projection, width), memory.matrix(at.context, width), context.fresh_gradients);
  const QkvWidths z = qkv_widths(context.model);
  for (int map = 0; map < z.maps; ++map) {
    linear_backward_weight<T>(context.space, gradients.qkv[map].weight, gradients.qkv[map].bias,
                              memory.matrix(work.qkv[map], z.width[map]), memory.matrix(at.norm.out, width),
                              context.fresh_gradients);
  }
  norm_backward_weight<T>(context, gradients.norm, at.norm, memory, memory.matrix(at.input, width),
                          memory.matrix(work.norm, width));
}

#define MINIPIPE_INSTANTIATE(T)                                                                                                \
  template AttentionTensors<T> attention_tensors<T>(TensorCursor<T>&);                                                         \
  template void attention_activate<T>(const LayerContext&, int, const AttentionTensors<T>&, const AttentionActivations&,       \
                                      const BlockMemory<T>&);                                                                  \
  template void attention_branch_forward<T>(const LayerContext&, int, const AttentionTensors<T>&, const AttentionActivations&, \
                                            const BlockMemory<T>&, Matrix<T>);                                                 \
  template void attention_branch_backward_input<T>(const LayerContext&, int, const AttentionTensors<T>&,                       \
                                                   const AttentionActivations&, const AttentionGradients&,                     \
                                                   const BlockMemory<T>&, Matrix<T>);                                          \
  template void attention_branch_backward_weight<T>(const LayerContext&, const AttentionTensors<Compute<T>>&,                  \
                                                    const AttentionActivations&, const AttentionGradients&,                    \
                                                    const BlockMemory<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
