#include "core/model/mlp_branch.hpp"

#include "core/kernels/columns.hpp"
#include "core/kernels/gelu.hpp"
#include "core/kernels/swiglu.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

namespace {

int up_maps(const Architecture& kind) { return kind.gated_mlp ? most_up_maps : 1; }

int computed_features(const ModelConfig& model, const BlockShare& share) {
  return share.features > 0 ? share.features : hidden_width(model);
}

int features_of(const std::vector<FeatureRun>& runs) {
  int sum = 0;
  for (const FeatureRun& run : runs) sum += run.count;
  return sum;
}

// The trained columns of values [R, F]: the matrix itself, or the packed copy.
template <class T>
Matrix<T> trained_columns(const ExecutionSpace& space, const MlpGradients& work, const BlockMemory<T>& memory,
                          const Matrix<T>& values) {
  if (work.trained.empty()) return values;
  const Matrix<T> packed = memory.matrix(work.packed, features_of(work.trained));
  int column = 0;
  for (const FeatureRun& run : work.trained) {
    copy_columns<T>(space, packed, column, values, run.begin, run.count);
    column += run.count;
  }
  return packed;
}

// The weight half of each layer.
template <class T>
void down_weight(const LayerContext& context, const MlpTensors<Compute<T>>& gradients, const MlpActivations& at,
                 const MlpGradients& work, const BlockMemory<T>& memory) {
  linear_backward_weight<T>(
      context.space, gradients.down.weight, gradients.down.bias, memory.matrix(work.down, context.model.width),
      trained_columns<T>(context.space, work, memory, memory.matrix(at.hidden, at.features)), context.fresh_gradients);
}
template <class T>
void up_weights(const LayerContext& context, const MlpTensors<Compute<T>>& gradients, const MlpActivations& at,
                const MlpGradients& work, const BlockMemory<T>& memory) {
  for (int map = 0; map < up_maps(architecture(context.model)); ++map) {
    linear_backward_weight<T>(context.space, gradients.up[map].weight, gradients.up[map].bias,
                              trained_columns<T>(context.space, work, memory, memory.matrix(work.up[map], at.features)),
                              memory.matrix(at.norm.out, context.model.width), context.fresh_gradients);
  }
}
template <class T>
void norm_weight(const LayerContext& context, const MlpTensors<Compute<T>>& gradients, const MlpActivations& at,
                 const MlpGradients& work, const BlockMemory<T>& memory) {
  const int width = context.model.width;
  norm_backward_weight<T>(context, gradients.norm, at.norm, memory, memory.matrix(at.input, width),
                          memory.matrix(work.norm, width));
}

void take_packed(BlockLayout& layout, MlpGradients& at, const TrainShape& shape, const BlockShare& share) {
  at.trained = share.trained_features;
  if (at.trained.empty()) return;
  at.packed = layout.take(Lifetime::passing, static_cast<std::size_t>(shape.rows()) * features_of(at.trained));
}

}  // namespace

template <class T>
MlpTensors<T> mlp_tensors(TensorCursor<T>& next) {
  MlpTensors<T> tensors;
  tensors.norm = next.norm();
  for (int map = 0; map < up_maps(next.kind()); ++map) tensors.up[map] = next.linear();
  tensors.down = next.linear();
  return tensors;
}

MlpActivations mlp_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape, Recompute recompute,
                               const BlockShare& share) {
  MlpActivations at;
  at.features = computed_features(model, share);
  const std::size_t rows = shape.rows(), hidden = rows * static_cast<std::size_t>(at.features);
  const auto [until_weights, until_inputs] = backward_lifetimes(recompute == Recompute::block);
  at.input = layout.take(!share.attention ? Lifetime::kept : until_weights, rows * model.width);
  at.norm = norm_places(layout, until_weights, model, shape);
  for (int map = 0; map < up_maps(architecture(model)); ++map) at.up[map] = layout.take(until_inputs, hidden);
  at.hidden = layout.take(until_weights, hidden);
  return at;
}

MlpGradients mlp_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape, const BlockShare& share) {
  const std::size_t rows = shape.rows();
  MlpGradients at;
  at.norm = layout.take(Lifetime::pending, rows * model.width);
  for (int map = 0; map < up_maps(architecture(model)); ++map) {
    at.up[map] = layout.take(Lifetime::pending, rows * static_cast<std::size_t>(computed_features(model, share)));
  }
  // Where the gradient of the activation's last input comes.
  at.hidden = at.up[up_maps(architecture(model)) - 1];
  at.down = layout.take(Lifetime::pending, rows * model.width);
  take_packed(layout, at, shape, share);
  return at;
}

MlpGradients mlp_gradients_in_place(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                    const MlpActivations& activations, const BlockShare& share) {
  MlpGradients at;
  at.up = activations.up;
  at.hidden = activations.hidden;
  // The gradient of the last map's output is of no more use when that of the norm's comes.
  at.down = at.norm = layout.take(Lifetime::pending, static_cast<std::size_t>(shape.rows()) * model.width);
  take_packed(layout, at, shape, share);
  return at;
}

template <class T>
void mlp_activate(const LayerContext& context, const MlpTensors<T>& weights, const MlpActivations& at,
                  const BlockMemory<T>& memory) {
  const ExecutionSpace& space = context.space;
  const int width = context.model.width, hidden = at.features;
  norm_forward<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, width));
  const Matrix<T> norm = memory.matrix(at.norm.out, width), out = memory.matrix(at.hidden, hidden);
  const auto up = [&](int map) { return memory.matrix(at.up[map], hidden); };
  if (architecture(context.model).gated_mlp) {
    for (int map = 0; map < 2; ++map) linear_forward<T>(space, up(map), norm, weights.up[map].weight, weights.up[map].bias);
    swiglu_forward<T>(space, flatten(out), flatten(up(0)), flatten(up(1)));
  } else {
    gemm<T>(space, false, true, 1, norm, weights.up[0].weight, 0, up(0));
    bias_gelu_forward<T>(space, out, up(0), weights.up[0].bias);
  }
}

template <class T>
void mlp_branch_forward(const LayerContext& context, int block, const MlpTensors<T>& weights, const MlpActivations& at,
                        const BlockMemory<T>& memory, Matrix<T> out) {
  mlp_activate<T>(context, weights, at, memory);
  linear_forward<T>(context.space, out, memory.matrix(at.hidden, at.features), weights.down.weight, weights.down.bias);
  dropout_residual_add<T>(context.space, flatten(out), flatten(memory.matrix(at.input, context.model.width)),
                          context.dropout(mlp_residual_dropout(block)));
}

template <class T>
void mlp_branch_backward_input(const LayerContext& context, int block, const MlpTensors<T>& weights, const MlpActivations& at,
                               const MlpGradients& work, const BlockMemory<T>& memory, Matrix<T> gradient,
                               const MlpTensors<Compute<T>>* weight_gradients) {
  const ExecutionSpace& space = context.space;
  const int width = context.model.width, hidden = at.features;
  const Matrix<T> down = memory.matrix(work.down, width);
  const auto up = [&](int map) { return memory.matrix(at.up[map], hidden); };
  const auto up_gradient = [&](int map) { return memory.matrix(work.up[map], hidden); };
  dropout<T>(space, flatten(down), flatten(gradient), context.dropout(mlp_residual_dropout(block)));
  const int maps = up_maps(architecture(context.model));
  if (weight_gradients != nullptr) down_weight<T>(context, *weight_gradients, at, work, memory);
  const Matrix<T> hidden_gradient = memory.matrix(work.hidden, hidden);
  linear_backward_input<T>(space, hidden_gradient, down, weights.down.weight);
  if (maps == 2) {
    swiglu_backward<T>(space, flatten(up_gradient(0)), flatten(up_gradient(1)), flatten(hidden_gradient), flatten(up(0)),
                       flatten(up(1)));
  } else {
    gelu_backward<T>(space, flatten(up_gradient(0)), flatten(hidden_gradient), flatten(up(0)));
  }
  if (weight_gradients != nullptr) up_weights<T>(context, *weight_gradients, at, work, memory);
  const Matrix<T> norm_gradient = memory.matrix(work.norm, width);
  for (int map = 0; map < maps; ++map) {
    linear_backward_input<T>(space, norm_gradient, up_gradient(map), weights.up[map].weight, map > 0);
  }
  if (weight_gradients != nullptr) norm_weight<T>(context, *weight_gradients, at, work, memory);
  norm_backward_input<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, width), norm_gradient, gradient, true);
}

template <class T>
void mlp_branch_backward_weight(const LayerContext& context, const MlpTensors<Compute<T>>& gradients, const MlpActivations& at,
                                const MlpGradients& work, const BlockMemory<T>& memory) {
  down_weight<T>(context, gradients, at, work, memory);
  up_weights<T>(context, gradients, at, work, memory);
  norm_weight<T>(context, gradients, at, work, memory);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                           \
  template MlpTensors<T> mlp_tensors<T>(TensorCursor<T>&);                                                                \
  template void mlp_activate<T>(const LayerContext&, const MlpTensors<T>&, const MlpActivations&, const BlockMemory<T>&); \
  template void mlp_branch_forward<T>(const LayerContext&, int, const MlpTensors<T>&, const MlpActivations&,              \
                                      const BlockMemory<T>&, Matrix<T>);                                                  \
  template void mlp_branch_backward_input<T>(const LayerContext&, int, const MlpTensors<T>&, const MlpActivations&,       \
                                             const MlpGradients&, const BlockMemory<T>&, Matrix<T>,                       \
                                             const MlpTensors<Compute<T>>*);                                              \
  template void mlp_branch_backward_weight<T>(const LayerContext&, const MlpTensors<Compute<T>>&, const MlpActivations&,  \
                                              const MlpGradients&, const BlockMemory<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
