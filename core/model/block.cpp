#include "core/model/block.hpp"

#include "core/kernels/attention.hpp"
#include "core/kernels/gelu.hpp"
#include "core/kernels/layer_norm.hpp"
#include "core/linalg/gemm.hpp"
#include "core/model/linear.hpp"

namespace minipipe::core {

namespace {

// The arrays of one block in a slot, or in a gradient workspace, for R rows and width C.
template <class T>
struct Arrays {
  Vector<T> memory;
  int rows, width;

  Matrix<T> matrix(std::size_t offset, int widths = 1) const { return slice_matrix<T>(memory, offset, rows, widths * width); }
  Vector<T> all(std::size_t offset, int widths = 1) const {
    return slice<T>(memory, offset, static_cast<std::int64_t>(rows) * widths * width);
  }
  Vector<T> by_row(std::size_t offset) const { return slice<T>(memory, offset, rows); }
};

AttentionShape attention_shape(const LayerContext& context) {
  return {context.shape.microbatch_size, context.shape.sequence, context.model.heads};
}

std::int64_t logsumexp_size(const ModelConfig& model, const TrainShape& shape) {
  return static_cast<std::int64_t>(shape.rows()) * model.heads;
}

}  // namespace

template <class T>
BlockTensors<T> block_tensors(const Vector<T>& buffer, const std::vector<ParameterEntry>& entries, std::size_t first) {
  const auto vector = [&](int which) {
    const ParameterEntry& entry = entries.at(first + which);
    return slice<T>(buffer, entry.offset, entry.size);
  };
  const auto matrix = [&](int which) {
    const ParameterEntry& entry = entries.at(first + which);
    return slice_matrix<T>(buffer, entry.offset, entry.shape.at(0), entry.shape.at(1));
  };
  return {vector(ln_1_weight),        vector(ln_1_bias),        matrix(c_attn_weight),     vector(c_attn_bias),
          matrix(attn_c_proj_weight), vector(attn_c_proj_bias), vector(ln_2_weight),       vector(ln_2_bias),
          matrix(c_fc_weight),        vector(c_fc_bias),        matrix(mlp_c_proj_weight), vector(mlp_c_proj_bias)};
}

BlockActivations block_activations(Layout& layout, const ModelConfig& model, const TrainShape& shape) {
  const std::size_t rows = shape.rows();
  const std::size_t size = rows * model.width;
  BlockActivations at;
  at.input = layout.take(size);
  at.mean_1 = layout.take(rows);
  at.rstd_1 = layout.take(rows);
  at.norm_1 = layout.take(size);
  at.qkv = layout.take(3 * size);
  at.attention = layout.take(size);
  at.logsumexp = layout.take(logsumexp_size(model, shape));
  at.residual = layout.take(size);
  at.mean_2 = layout.take(rows);
  at.rstd_2 = layout.take(rows);
  at.norm_2 = layout.take(size);
  at.fc = layout.take(4 * size);
  at.gelu = layout.take(4 * size);
  return at;
}

BlockGradients block_gradients(Layout& layout, const ModelConfig& model, const TrainShape& shape) {
  const std::size_t size = static_cast<std::size_t>(shape.rows()) * model.width;
  BlockGradients at;
  at.norm_1 = layout.take(size);
  at.qkv = layout.take(3 * size);
  at.attn_proj = layout.take(size);
  at.norm_2 = layout.take(size);
  at.fc = layout.take(4 * size);
  at.mlp_proj = layout.take(size);
  return at;
}

template <class T>
void block_forward(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                   const Vector<T>& slot, Matrix<T> out) {
  const ExecutionSpace& space = context.space;
  const Arrays<T> kept{slot, context.rows(), context.model.width};
  const T epsilon = static_cast<T>(layer_norm_epsilon);
  const Matrix<T> input = kept.matrix(at.input);

  const Matrix<T> norm_1 = kept.matrix(at.norm_1);
  layer_norm_forward<T>(space, norm_1, kept.by_row(at.mean_1), kept.by_row(at.rstd_1), input, weights.ln_1_weight,
                        weights.ln_1_bias, epsilon);
  const Matrix<T> qkv = kept.matrix(at.qkv, 3);
  linear_forward<T>(space, qkv, norm_1, weights.c_attn_weight, weights.c_attn_bias);
  const Matrix<T> attention = kept.matrix(at.attention);
  attention_forward<T>(space, attention, slice<T>(slot, at.logsumexp, logsumexp_size(context.model, context.shape)), qkv,
                       attention_shape(context), context.dropout(attention_dropout(block)));
  const Matrix<T> residual = kept.matrix(at.residual);
  linear_forward<T>(space, residual, attention, weights.attn_proj_weight, weights.attn_proj_bias);
  dropout_residual_add<T>(space, flatten(residual), flatten(input), context.dropout(attention_residual_dropout(block)));

  const Matrix<T> norm_2 = kept.matrix(at.norm_2);
  layer_norm_forward<T>(space, norm_2, kept.by_row(at.mean_2), kept.by_row(at.rstd_2), residual, weights.ln_2_weight,
                        weights.ln_2_bias, epsilon);
  gemm<T>(space, false, true, T(1), norm_2, weights.fc_weight, T(0), kept.matrix(at.fc, 4));
  bias_gelu_forward<T>(space, kept.matrix(at.gelu, 4), kept.matrix(at.fc, 4), weights.fc_bias);
  linear_forward<T>(space, out, kept.matrix(at.gelu, 4), weights.mlp_proj_weight, weights.mlp_proj_bias);
  dropout_residual_add<T>(space, flatten(out), flatten(residual), context.dropout(mlp_residual_dropout(block)));
}

template <class T>
void block_backward_input(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                          const Vector<T>& slot, const BlockGradients& work_at, const Vector<T>& workspace,
                          Matrix<T> gradient) {
  const ExecutionSpace& space = context.space;
  const Arrays<T> kept{slot, context.rows(), context.model.width};
  const Arrays<T> work{workspace, context.rows(), context.model.width};
  const Vector<T> flat = flatten(gradient);

  dropout<T>(space, work.all(work_at.mlp_proj), flat, context.dropout(mlp_residual_dropout(block)));
  linear_backward_input<T>(space, work.matrix(work_at.fc, 4), work.matrix(work_at.mlp_proj), weights.mlp_proj_weight);
  gelu_backward<T>(space, work.all(work_at.fc, 4), work.all(work_at.fc, 4), kept.all(at.fc, 4));
  linear_backward_input<T>(space, work.matrix(work_at.norm_2), work.matrix(work_at.fc, 4), weights.fc_weight);
  layer_norm_backward_input<T>(space, gradient, work.matrix(work_at.norm_2), kept.matrix(at.residual), kept.by_row(at.mean_2),
                               kept.by_row(at.rstd_2), weights.ln_2_weight, true);

  dropout<T>(space, work.all(work_at.attn_proj), flat, context.dropout(attention_residual_dropout(block)));
  // The gradient of the attention's output lives where that of the first LayerNorm's output comes afterwards.
  const Matrix<T> attention_gradient = work.matrix(work_at.norm_1);
  linear_backward_input<T>(space, attention_gradient, work.matrix(work_at.attn_proj), weights.attn_proj_weight);
  attention_backward<T>(space, work.matrix(work_at.qkv, 3), attention_gradient, kept.matrix(at.qkv, 3),
                        kept.matrix(at.attention), slice<T>(slot, at.logsumexp, logsumexp_size(context.model, context.shape)),
                        attention_shape(context), context.dropout(attention_dropout(block)));
  linear_backward_input<T>(space, work.matrix(work_at.norm_1), work.matrix(work_at.qkv, 3), weights.c_attn_weight);
  layer_norm_backward_input<T>(space, gradient, work.matrix(work_at.norm_1), kept.matrix(at.input), kept.by_row(at.mean_1),
                               kept.by_row(at.rstd_1), weights.ln_1_weight, true);
}

template <class T>
void block_backward_weight(const LayerContext& context, const BlockTensors<T>& gradients, const BlockActivations& at,
                           const Vector<T>& slot, const BlockGradients& work_at, const Vector<T>& workspace) {
  const ExecutionSpace& space = context.space;
  const Arrays<T> kept{slot, context.rows(), context.model.width};
  const Arrays<T> work{workspace, context.rows(), context.model.width};
  linear_backward_weight<T>(space, gradients.mlp_proj_weight, gradients.mlp_proj_bias, work.matrix(work_at.mlp_proj),
                            kept.matrix(at.gelu, 4));
  linear_backward_weight<T>(space, gradients.fc_weight, gradients.fc_bias, work.matrix(work_at.fc, 4), kept.matrix(at.norm_2));
  layer_norm_backward_parameters<T>(space, gradients.ln_2_weight, gradients.ln_2_bias, work.matrix(work_at.norm_2),
                                    kept.matrix(at.residual), kept.by_row(at.mean_2), kept.by_row(at.rstd_2));
  linear_backward_weight<T>(space, gradients.attn_proj_weight, gradients.attn_proj_bias, work.matrix(work_at.attn_proj),
                            kept.matrix(at.attention));
  linear_backward_weight<T>(space, gradients.c_attn_weight, gradients.c_attn_bias, work.matrix(work_at.qkv, 3),
                            kept.matrix(at.norm_1));
  layer_norm_backward_parameters<T>(space, gradients.ln_1_weight, gradients.ln_1_bias, work.matrix(work_at.norm_1),
                                    kept.matrix(at.input), kept.by_row(at.mean_1), kept.by_row(at.rstd_1));
}

#define MINIPIPE_INSTANTIATE(T)                                                                                               \
  template BlockTensors<T> block_tensors<T>(const Vector<T>&, const std::vector<ParameterEntry>&, std::size_t);               \
  template void block_forward<T>(const LayerContext&, int, const BlockTensors<T>&, const BlockActivations&, const Vector<T>&, \
                                 Matrix<T>);                                                                                  \
  template void block_backward_input<T>(const LayerContext&, int, const BlockTensors<T>&, const BlockActivations&,            \
                                        const Vector<T>&, const BlockGradients&, const Vector<T>&, Matrix<T>);                \
  template void block_backward_weight<T>(const LayerContext&, const BlockTensors<T>&, const BlockActivations&,                \
                                         const Vector<T>&, const BlockGradients&, const Vector<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
