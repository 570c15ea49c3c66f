#include "core/model/state_space_branch.hpp"

#include "core/kernels/causal_conv.hpp"
#include "core/kernels/rms_norm.hpp"
#include "core/kernels/swiglu.hpp"
#include "core/model/linear.hpp"

namespace minipipe::core {

namespace {

ScanShape scan_shape(const ModelConfig& model, const TrainShape& shape) {
  return {shape.microbatch_size, shape.sequence,     state_heads(model),
          model.state_head_size, model.state_groups, model.state_size};
}
ConvShape conv_shape(const TrainShape& shape) { return {shape.microbatch_size, shape.sequence}; }

// The rows of the input projection [I + X + H, C] by what they make; each part is a matrix of its own.
template <class T>
struct InParts {
  Matrix<T> z, xbc, dt;
};
template <class T>
InParts<T> in_parts(const Matrix<T>& in, const ModelConfig& model) {
  const std::int64_t width = model.width, inner = state_width(model), features = conv_features(model);
  const Vector<T> all = flatten(in);
  return {slice_matrix(all, 0, inner, width), slice_matrix(all, inner * width, features, width),
          slice_matrix(all, (inner + features) * width, state_heads(model), width)};
}

// The parts of what passed the convolution [R, X], and dt [R, H].
template <class T>
ScanInputs<T> scan_inputs(const Matrix<T>& convolved, const Matrix<T>& dt, const ModelConfig& model) {
  const std::int64_t inner = state_width(model), shared = model.state_groups * model.state_size;
  return {columns_of(convolved, 0, inner), columns_of(dt), columns_of(convolved, inner, shared),
          columns_of(convolved, inner + shared, shared)};
}

}  // namespace

template <class T>
StateSpaceTensors<T> state_space_tensors(TensorCursor<T>& next) {
  StateSpaceTensors<T> tensors;
  tensors.norm = next.norm();
  tensors.in = next.matrix();
  tensors.conv = next.matrix();
  tensors.conv_bias = next.vector();
  tensors.scan.dt_bias = next.vector();
  tensors.scan.a_log = next.vector();
  tensors.scan.d = next.vector();
  tensors.gated_norm = next.vector();
  tensors.out = next.matrix();
  return tensors;
}

StateSpaceActivations state_space_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                              Recompute recompute) {
  const std::size_t rows = shape.rows(), inner = rows * state_width(model), features = rows * conv_features(model);
  const auto [until_weights, until_inputs] = backward_lifetimes(recompute == Recompute::block);
  StateSpaceActivations at;
  at.input = layout.take(Lifetime::kept, rows * model.width);
  at.norm = norm_places(layout, until_weights, model, shape);
  at.z = layout.take(until_inputs, inner);
  at.xbc = layout.take(until_weights, features);
  at.dt = layout.take(until_inputs, rows * state_heads(model));
  at.convolved = layout.take(until_inputs, features);
  at.states = layout.take_wide(until_inputs, scan_states(scan_shape(model, shape)));
  at.y = layout.take(until_inputs, inner);
  at.gated = layout.take(until_weights, inner);
  at.gated_rstd = layout.take_wide(until_weights, rows);
  at.normed = layout.take(until_weights, inner);
  return at;
}

StateSpaceGradients state_space_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape) {
  const std::size_t rows = shape.rows(), inner = rows * state_width(model), features = rows * conv_features(model);
  StateSpaceGradients at;
  at.norm = layout.take(Lifetime::pending, rows * model.width);
  at.z = layout.take(Lifetime::pending, inner);
  at.xbc = layout.take(Lifetime::pending, features);
  at.dt = layout.take(Lifetime::pending, rows * state_heads(model));
  at.convolved = layout.take(Lifetime::pending, features);
  at.sums = layout.take_wide(Lifetime::pending, scan_sums(scan_shape(model, shape)));
  at.normed = layout.take(Lifetime::pending, inner);
  at.out = layout.take(Lifetime::pending, rows * model.width);
  at.y = layout.take(Lifetime::passing, inner);
  at.workspace = layout.take_wide(Lifetime::passing, scan_workspace(scan_shape(model, shape)));
  return at;
}

template <class T>
void state_space_activate(const LayerContext& context, const StateSpaceTensors<T>& weights, const StateSpaceActivations& at,
                          const BlockMemory<T>& memory) {
  const ExecutionSpace& space = context.space;
  const ModelConfig& model = context.model;
  const int inner = state_width(model), features = conv_features(model);
  const ScanShape scan = scan_shape(model, context.shape);
  norm_forward<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, model.width));
  const Matrix<T> norm = memory.matrix(at.norm.out, model.width);
  const Matrix<T> z = memory.matrix(at.z, inner), xbc = memory.matrix(at.xbc, features);
  const Matrix<T> dt = memory.matrix(at.dt, state_heads(model)), convolved = memory.matrix(at.convolved, features);
  const Matrix<T> y = memory.matrix(at.y, inner), gated = memory.matrix(at.gated, inner);
  const InParts<T> in = in_parts(weights.in, model);
  linear_forward<T>(space, z, norm, in.z, {});
  linear_forward<T>(space, xbc, norm, in.xbc, {});
  linear_forward<T>(space, dt, norm, in.dt, {});
  causal_conv_forward<T>(space, convolved, columns_of<const T>(xbc), weights.conv, weights.conv_bias,
                         conv_shape(context.shape));
  selective_scan_forward<T>(space, y, memory.vector(at.states, scan_states(scan)), scan_inputs(convolved, dt, model),
                            weights.scan, scan);
  swiglu_forward<T>(space, flatten(gated), flatten(z), flatten(y));
  rms_norm_forward<T>(space, memory.matrix(at.normed, inner), memory.by_row(at.gated_rstd), gated, weights.gated_norm,
                      static_cast<Compute<T>>(norm_epsilon));
}

template <class T>
void state_space_branch_forward(const LayerContext& context, int block, const StateSpaceTensors<T>& weights,
                                const StateSpaceActivations& at, const BlockMemory<T>& memory, Matrix<T> out) {
  state_space_activate<T>(context, weights, at, memory);
  linear_forward<T>(context.space, out, memory.matrix(at.normed, state_width(context.model)), weights.out, {});
  dropout_residual_add<T>(context.space, flatten(out), flatten(memory.matrix(at.input, context.model.width)),
                          context.dropout(mlp_residual_dropout(block)));
}

template <class T>
void state_space_branch_backward_input(const LayerContext& context, int block, const StateSpaceTensors<T>& weights,
                                       const StateSpaceActivations& at, const StateSpaceGradients& work,
                                       const BlockMemory<T>& memory, Matrix<T> gradient) {
  const ExecutionSpace& space = context.space;
  const ModelConfig& model = context.model;
  const int inner = state_width(model), features = conv_features(model), heads = state_heads(model);
  const ScanShape scan = scan_shape(model, context.shape);
  const Matrix<T> out_gradient = memory.matrix(work.out, model.width), normed_gradient = memory.matrix(work.normed, inner);
  dropout<T>(space, flatten(out_gradient), flatten(gradient), context.dropout(mlp_residual_dropout(block)));
  linear_backward_input<T>(space, normed_gradient, out_gradient, weights.out);
  // The gradient of the gate's output lives where that of y comes.
  const Matrix<T> y_gradient = memory.matrix(work.y, inner), z_gradient = memory.matrix(work.z, inner);
  rms_norm_backward_input<T>(space, y_gradient, normed_gradient, memory.matrix(at.gated, inner), memory.by_row(at.gated_rstd),
                             weights.gated_norm, false);
  swiglu_backward<T>(space, flatten(z_gradient), flatten(y_gradient), flatten(y_gradient), flatten(memory.matrix(at.z, inner)),
                     flatten(memory.matrix(at.y, inner)));
  const Matrix<T> convolved_gradient = memory.matrix(work.convolved, features), dt_gradient = memory.matrix(work.dt, heads);
  selective_scan_backward_input<T>(
      space, scan_inputs(convolved_gradient, dt_gradient, model), memory.vector(work.sums, scan_sums(scan)), y_gradient,
      scan_inputs(memory.matrix(at.convolved, features), memory.matrix(at.dt, heads), model), weights.scan,
      memory.vector(at.states, scan_states(scan)), memory.vector(work.workspace, scan_workspace(scan)), scan);
  const Matrix<T> xbc_gradient = memory.matrix(work.xbc, features);
  causal_conv_backward_input<T>(space, columns_of(xbc_gradient), convolved_gradient, convolved_gradient,
                                columns_of<const T>(memory.matrix(at.xbc, features)), weights.conv, weights.conv_bias,
                                conv_shape(context.shape));
  const Matrix<T> norm_gradient = memory.matrix(work.norm, model.width);
  const InParts<T> in = in_parts(weights.in, model);
  linear_backward_input<T>(space, norm_gradient, z_gradient, in.z);
  linear_backward_input<T>(space, norm_gradient, xbc_gradient, in.xbc, true);
  linear_backward_input<T>(space, norm_gradient, dt_gradient, in.dt, true);
  norm_backward_input<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, model.width), norm_gradient, gradient,
                         true);
}

template <class T>
void state_space_branch_backward_weight(const LayerContext& context, const StateSpaceTensors<Compute<T>>& gradients,
                                        const StateSpaceActivations& at, const StateSpaceGradients& work,
                                        const BlockMemory<T>& memory) {
  const ExecutionSpace& space = context.space;
  const ModelConfig& model = context.model;
  const int inner = state_width(model), features = conv_features(model);
  const ScanShape scan = scan_shape(model, context.shape);
  const bool fresh = context.fresh_gradients;
  linear_backward_weight<T>(space, gradients.out, {}, memory.matrix(work.out, model.width), memory.matrix(at.normed, inner),
                            fresh);
  rms_norm_backward_parameters<T>(space, gradients.gated_norm, memory.matrix(work.normed, inner),
                                  memory.matrix(at.gated, inner), memory.by_row(at.gated_rstd));
  selective_scan_backward_parameters<Compute<T>>(space, gradients.scan, memory.vector(work.sums, scan_sums(scan)), scan);
  causal_conv_backward_parameters<T>(space, gradients.conv, gradients.conv_bias, memory.matrix(work.convolved, features),
                                     columns_of<const T>(memory.matrix(at.xbc, features)), conv_shape(context.shape));
  const Matrix<T> norm = memory.matrix(at.norm.out, model.width);
  const InParts<Compute<T>> in = in_parts(gradients.in, model);
  linear_backward_weight<T>(space, in.z, {}, memory.matrix(work.z, inner), norm, fresh);
  linear_backward_weight<T>(space, in.xbc, {}, memory.matrix(work.xbc, features), norm, fresh);
  linear_backward_weight<T>(space, in.dt, {}, memory.matrix(work.dt, state_heads(model)), norm, fresh);
  norm_backward_weight<T>(context, gradients.norm, at.norm, memory, memory.matrix(at.input, model.width),
                          memory.matrix(work.norm, model.width));
}

#define MINIPIPE_INSTANTIATE(T)                                                                                         \
  template StateSpaceTensors<T> state_space_tensors<T>(TensorCursor<T>&);                                               \
  template void state_space_activate<T>(const LayerContext&, const StateSpaceTensors<T>&, const StateSpaceActivations&, \
                                        const BlockMemory<T>&);                                                         \
  template void state_space_branch_forward<T>(const LayerContext&, int, const StateSpaceTensors<T>&,                    \
                                              const StateSpaceActivations&, const BlockMemory<T>&, Matrix<T>);          \
  template void state_space_branch_backward_input<T>(const LayerContext&, int, const StateSpaceTensors<T>&,             \
                                                     const StateSpaceActivations&, const StateSpaceGradients&,          \
                                                     const BlockMemory<T>&, Matrix<T>);                                 \
  template void state_space_branch_backward_weight<T>(const LayerContext&, const StateSpaceTensors<Compute<T>>&,        \
                                                      const StateSpaceActivations&, const StateSpaceGradients&,         \
                                                      const BlockMemory<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
