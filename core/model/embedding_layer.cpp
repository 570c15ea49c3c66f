#include "core/model/embedding_layer.hpp"

#include "core/kernels/embedding.hpp"

namespace minipipe::core {

template <class T>
void embedding_layer_forward(const LayerContext& context, const EmbeddingTensors<T>& weights, ConstMatrix<std::int32_t> tokens,
                             Matrix<T> out) {
  embedding_forward<T>(context.space, out, tokens, weights.tokens, weights.positions);
  dropout<T>(context.space, flatten(out), flatten(out), context.dropout(embedding_dropout));
}

template <class T>
void embedding_layer_backward_weight(const LayerContext& context, const EmbeddingTensors<Compute<T>>& gradients,
                                     ConstMatrix<std::int32_t> tokens, Matrix<T> output_gradient) {
  dropout<T>(context.space, flatten(output_gradient), flatten(output_gradient), context.dropout(embedding_dropout));
  embedding_backward<T>(context.space, gradients.tokens, gradients.positions, output_gradient, tokens);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                        \
  template void embedding_layer_forward<T>(const LayerContext&, const EmbeddingTensors<T>&, ConstMatrix<std::int32_t>, \
                                           Matrix<T>);                                                                 \
  template void embedding_layer_backward_weight<T>(const LayerContext&, const EmbeddingTensors<Compute<T>>&,           \
                                                   ConstMatrix<std::int32_t>, Matrix<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
