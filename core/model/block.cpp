#include "core/model/block.hpp"

namespace minipipe::core {

BlockActivations block_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                   Recompute recompute) {
  BlockActivations at;
  at.attention = attention_activations(layout, model, shape, recompute);
  at.mlp = mlp_activations(layout, model, shape, recompute);
  at.recompute = recompute;
  return at;
}

BlockGradients block_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape) {
  BlockGradients at;
  at.attention = attention_gradients(layout, model, shape);
  at.mlp = mlp_gradients(layout, model, shape);
  return at;
}

template <class T>
void block_forward(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                   const BlockMemory<T>& memory, Matrix<T> out) {
  attention_branch_forward<T>(context, block, weights.attention, at.attention, memory,
                              memory.matrix(at.mlp.input, context.model.width));
  mlp_branch_forward<T>(context, block, weights.mlp, at.mlp, memory, out);
}

template <class T>
void block_backward_input(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                          const BlockGradients& work, const BlockMemory<T>& memory, Matrix<T> gradient) {
  if (at.recompute == Recompute::attention) attention_activate<T>(context, block, weights.attention, at.attention, memory);
  if (at.recompute == Recompute::block) {
    attention_branch_forward<T>(context, block, weights.attention, at.attention, memory,
                                memory.matrix(at.mlp.input, context.model.width));
    mlp_activate<T>(context, weights.mlp, at.mlp, memory);
  }
  mlp_branch_backward_input<T>(context, block, weights.mlp, at.mlp, work.mlp, memory, gradient);
  attention_branch_backward_input<T>(context, block, weights.attention, at.attention, work.attention, memory, gradient);
}

template <class T>
void block_backward_weight(const LayerContext& context, const BlockTensors<T>& gradients, const BlockActivations& at,
                           const BlockGradients& work, const BlockMemory<T>& memory) {
  mlp_branch_backward_weight<T>(context, gradients.mlp, at.mlp, work.mlp, memory);
  attention_branch_backward_weight<T>(context, gradients.attention, at.attention, work.attention, memory);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                    \
  template void block_forward<T>(const LayerContext&, int, const BlockTensors<T>&, const BlockActivations&,        \
                                 const BlockMemory<T>&, Matrix<T>);                                                \
  template void block_backward_input<T>(const LayerContext&, int, const BlockTensors<T>&, const BlockActivations&, \
                                        const BlockGradients&, const BlockMemory<T>&, Matrix<T>);                  \
  template void block_backward_weight<T>(const LayerContext&, const BlockTensors<T>&, const BlockActivations&,     \
                                         const BlockGradients&, const BlockMemory<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
