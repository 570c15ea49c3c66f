#include "core/model/head_layer.hpp"

#include "core/kernels/cross_entropy.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

HeadActivations head_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape) {
  const std::size_t rows = shape.rows();
  HeadActivations at;
  at.input = layout.take(Lifetime::kept, rows * model.width);
  at.norm = norm_places(layout, Lifetime::kept, model, shape);
  at.logits = layout.take(Lifetime::kept, rows * model.vocab);
  return at;
}

Place head_gradient(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape) {
  return layout.take(Lifetime::pending, static_cast<std::size_t>(shape.rows()) * model.width);
}

template <class T>
void head_norm(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
               const BlockMemory<T>& memory) {
  norm_forward<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, context.model.width));
}

template <class T>
void head_losses(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                 const BlockMemory<T>& memory, ConstVector<std::int32_t> targets, Vector<Compute<T>> losses) {
  const Matrix<T> logits = memory.matrix(at.logits, context.model.vocab);
  gemm<T>(context.space, false, true, 1, memory.matrix(at.norm.out, context.model.width), weights.weight, 0, logits);
  cross_entropy_loss<T>(context.space, losses, logits, targets);
}

template <class T>
void head_forward(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                  const BlockMemory<T>& memory, ConstVector<std::int32_t> targets, Vector<Compute<T>> losses) {
  head_norm<T>(context, weights, at, memory);
  head_losses<T>(context, weights, at, memory, targets, losses);
}

template <class T>
void head_backward_logits(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                          Place norm_gradient, const BlockMemory<T>& memory, ConstVector<std::int32_t> targets,
                          Compute<T> loss_scale, Vector<Compute<T>> losses) {
  const Matrix<T> logits = memory.matrix(at.logits, context.model.vocab);
  cross_entropy_gradient<T>(context.space, losses, logits, targets, loss_scale);
  gemm<T>(context.space, false, false, 1, logits, weights.weight, 0, memory.matrix(norm_gradient, context.model.width));
}

template <class T>
void head_backward_norm(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                        Place norm_gradient, const BlockMemory<T>& memory, Matrix<T> gradient) {
  const int width = context.model.width;
  norm_backward_input<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, width),
                         memory.matrix(norm_gradient, width), gradient, false);
}

template <class T>
void head_backward_input(const LayerContext& context, const HeadTensors<T>& weights, const HeadActivations& at,
                         Place norm_gradient, const BlockMemory<T>& memory, ConstVector<std::int32_t> targets,
                         Compute<T> loss_scale, Matrix<T> gradient, Vector<Compute<T>> losses) {
  head_backward_logits<T>(context, weights, at, norm_gradient, memory, targets, loss_scale, losses);
  head_backward_norm<T>(context, weights, at, norm_gradient, memory, gradient);
}

template <class T>
void head_matrix_backward_weight(const LayerContext& context, const HeadTensors<Compute<T>>& gradients,
                                 const HeadActivations& at, const BlockMemory<T>& memory) {
  gemm<T, Compute<T>>(context.space, true, false, 1, memory.matrix(at.logits, context.model.vocab),
                      memory.matrix(at.norm.out, context.model.width), 1, gradients.weight);
}

template <class T>
void head_norm_backward_weight(const LayerContext& context, const HeadTensors<Compute<T>>& gradients, const HeadActivations& at,
                               Place norm_gradient, const BlockMemory<T>& memory) {
  const int width = context.model.width;
  norm_backward_weight<T>(context, gradients.norm, at.norm, memory, memory.matrix(at.input, width),
                          memory.matrix(norm_gradient, width));
}

template <class T>
void head_backward_weight(const LayerContext& context, const HeadTensors<Compute<T>>& gradients, const HeadActivations& at,
                          Place norm_gradient, const BlockMemory<T>& memory) {
  head_matrix_backward_weight<T>(context, gradients, at, memory);
  head_norm_backward_weight<T>(context, gradients, at, norm_gradient, memory);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                             \
  template void head_norm<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, const BlockMemory<T>&);    \
  template void head_losses<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, const BlockMemory<T>&,   \
                               ConstVector<std::int32_t>, Vector<Compute<T>>);                                              \
  template void head_forward<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, const BlockMemory<T>&,  \
                                ConstVector<std::int32_t>, Vector<Compute<T>>);                                             \
  template void head_backward_logits<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, Place,          \
                                        const BlockMemory<T>&, ConstVector<std::int32_t>, Compute<T>, Vector<Compute<T>>);  \
  template void head_backward_norm<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, Place,            \
                                      const BlockMemory<T>&, Matrix<T>);                                                    \
  template void head_matrix_backward_weight<T>(const LayerContext&, const HeadTensors<Compute<T>>&, const HeadActivations&, \
                                               const BlockMemory<T>&);                                                      \
  template void head_norm_backward_weight<T>(const LayerContext&, const HeadTensors<Compute<T>>&, const HeadActivations&,   \
                                             Place, const BlockMemory<T>&);                                                 \
  template void head_backward_input<T>(const LayerContext&, const HeadTensors<T>&, const HeadActivations&, Place,           \
                                       const BlockMemory<T>&, ConstVector<std::int32_t>, Compute<T>, Matrix<T>,             \
                                       Vector<Compute<T>>);                                                                 \
  template void head_backward_weight<T>(const LayerContext&, const HeadTensors<Compute<T>>&, const HeadActivations&, Place, \
                                        const BlockMemory<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
