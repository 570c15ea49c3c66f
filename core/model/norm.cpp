#include "core/model/norm.hpp"

#include "core/kernels/layer_norm.hpp"
#include "core/kernels/rms_norm.hpp"

namespace minipipe::core {

NormPlaces norm_places(BlockLayout& layout, Lifetime lifetime, const ModelConfig& model, const TrainShape& shape) {
  const std::size_t rows = shape.rows();
  NormPlaces at;
  if (!architecture(model).rms_norm) at.mean = layout.take_wide(lifetime, rows);
  at.rstd = layout.take_wide(lifetime, rows);
  at.out = layout.take(lifetime, rows * model.width);
  return at;
}

template <class T>
void norm_forward(const LayerContext& context, const NormTensors<T>& weights, const NormPlaces& at,
                  const BlockMemory<T>& memory, ConstMatrix<T> input) {
  const Matrix<T> out = memory.matrix(at.out, context.model.width);
  const auto epsilon = static_cast<Compute<T>>(norm_epsilon);
  if (architecture(context.model).rms_norm) {
    rms_norm_forward<T>(context.space, out, memory.by_row(at.rstd), input, weights.weight, epsilon);
  } else {
    layer_norm_forward<T>(context.space, out, memory.by_row(at.mean), memory.by_row(at.rstd), input, weights.weight,
                          weights.bias, epsilon);
  }
}

template <class T>
void norm_backward_input(const LayerContext& context, const NormTensors<T>& weights, const NormPlaces& at,
                         const BlockMemory<T>& memory, ConstMatrix<T> input, ConstMatrix<T> output_gradient, Matrix<T> gradient,
                         bool accumulate) {
  if (architecture(context.model).rms_norm) {
    rms_norm_backward_input<T>(context.space, gradient, output_gradient, input, memory.by_row(at.rstd), weights.weight,
                               accumulate);
  } else {
    layer_norm_backward_input<T>(context.space, gradient, output_gradient, input, memory.by_row(at.mean),
                                 memory.by_row(at.rstd), weights.weight, accumulate);
  }
}

template <class T>
void norm_backward_weight(const LayerContext& context, const NormTensors<Compute<T>>& gradients, const NormPlaces& at,
                          const BlockMemory<T>& memory, ConstMatrix<T> input, ConstMatrix<T> output_gradient) {
  if (architecture(context.model).rms_norm) {
    rms_norm_backward_parameters<T>(context.space, gradients.weight, output_gradient, input, memory.by_row(at.rstd));
  } else {
    layer_norm_backward_parameters<T>(context.space, gradients.weight, gradients.bias, output_gradient, input,
                                      memory.by_row(at.mean), memory.by_row(at.rstd));
  }
}

#define MINIPIPE_INSTANTIATE(T)                                                                                              \
  template void norm_forward<T>(const LayerContext&, const NormTensors<T>&, const NormPlaces&, const BlockMemory<T>&,        \
                                ConstMatrix<T>);                                                                             \
  template void norm_backward_input<T>(const LayerContext&, const NormTensors<T>&, const NormPlaces&, const BlockMemory<T>&, \
                                       ConstMatrix<T>, ConstMatrix<T>, Matrix<T>, bool);                                     \
  template void norm_backward_weight<T>(const LayerContext&, const NormTensors<Compute<T>>&, const NormPlaces&,              \
                                        const BlockMemory<T>&, ConstMatrix<T>, ConstMatrix<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
