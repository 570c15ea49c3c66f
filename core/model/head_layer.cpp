#include "core/model/head_layer.hpp"

#include "core/kernels/cross_entropy.hpp"
#include "core/kernels/layer_norm.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

HeadActivations head_activations(Layout& layout, const ModelConfig& model, const TrainShape& shape) {
  const std::size_t rows = shape.rows();
  HeadActivations at;
  at.input = layout.take(rows * model.width);
  at.mean = layout.take(rows);
  at.rstd = layout.take(rows);
  at.norm = layout.take(rows * model.width);
  at.logits = layout.take(rows * model.vocab);
  return at;
}

std::size_t head_workspace(const ModelConfig& model, const TrainShape& shape) {
  return static_cast<std::size_t>(shape.rows()) * model.width;
}

template <class T>
void head_forward(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at, const Vector<T>& slot,
                  ConstVector<std::int32_t> targets, Vector<T> losses) {
  const int rows = context.rows();
  const int width = context.model.width;
  const Matrix<T> norm = slice_matrix<T>(slot, at.norm, rows, width);
  const Matrix<T> logits = slice_matrix<T>(slot, at.logits, rows, context.model.vocab);
  layer_norm_forward<T>(context.space, norm, slice<T>(slot, at.mean, rows), slice<T>(slot, at.rstd, rows),
                        slice_matrix<T>(slot, at.input, rows, width), weights.norm_weight, weights.norm_bias,
                        static_cast<T>(layer_norm_epsilon));
  gemm<T>(context.space, false, true, T(1), norm, weights.weight, T(0), logits);
  cross_entropy_loss<T>(context.space, losses, logits, targets);
}

template <class T>
void head_backward_input(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                         const Vector<T>& slot, ConstVector<std::int32_t> targets, T loss_scale, Matrix<T> workspace,
                         Matrix<T> gradient, Vector<T> losses) {
  const int rows = context.rows();
  const Matrix<T> logits = slice_matrix<T>(slot, at.logits, rows, context.model.vocab);
  cross_entropy_gradient<T>(context.space, losses, logits, targets, loss_scale);
  gemm<T>(context.space, false, false, T(1), logits, weights.weight, T(0), workspace);
  layer_norm_backward_input<T>(context.space, gradient, workspace, slice_matrix<T>(slot, at.input, rows, context.model.width),
                               slice<T>(slot, at.mean, rows), slice<T>(slot, at.rstd, rows), weights.norm_weight, false);
}

template <class T>
void head_backward_weight(const LayerContext& context, const HeadTensors<T>& gradients, const HeadActivations& at,
                          const Vector<T>& slot, Matrix<T> workspace) {
  const int rows = context.rows();
  const int width = context.model.width;
  const Matrix<T> logits_gradient = slice_matrix<T>(slot, at.logits, rows, context.model.vocab);
  gemm<T>(context.space, true, false, T(1), logits_gradient, slice_matrix<T>(slot, at.norm, rows, width), T(1),
          gradients.weight);
  layer_norm_backward_parameters<T>(context.space, gradients.norm_weight, gradients.norm_bias, workspace,
                                    slice_matrix<T>(slot, at.input, rows, width), slice<T>(slot, at.mean, rows),
                                    slice<T>(slot, at.rstd, rows));
}

#define MINIPIPE_INSTANTIATE(T)                                                                                               \
  template void head_forward<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, const Vector<T>&,         \
                                ConstVector<std::int32_t>, Vector<T>);                                                        \
  template void head_backward_input<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, const Vector<T>&,  \
                                       ConstVector<std::int32_t>, T, Matrix<T>, Matrix<T>, Vector<T>);                        \
  template void head_backward_weight<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, const Vector<T>&, \
                                        Matrix<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
