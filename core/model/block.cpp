#include "core/model/block.hpp"

namespace minipipe::core {

BlockActivations block_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape, Recompute recompute,
                                   const BlockShare& share) {
  BlockActivations at;
  if (share.attention) at.attention = attention_activations(layout, model, shape, recompute);
  if (share.mlp) at.mlp = mlp_activations(layout, model, shape, recompute, share);
  if (share.experts) at.experts = experts_activations(layout, model, shape, recompute);
  if (share.state_space) at.state_space = state_space_activations(layout, model, shape, recompute);
  at.recompute = recompute;
  at.share = share;
  return at;
}

BlockGradients block_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                               const BlockShare& share) {
  BlockGradients at;
  if (share.attention) at.attention = attention_gradients(layout, model, shape);
  if (share.mlp) at.mlp = mlp_gradients(layout, model, shape, share);
  if (share.experts) at.experts = experts_gradients(layout, model, shape);
  if (share.state_space) at.state_space = state_space_gradients(layout, model, shape);
  return at;
}

BlockPlaces whole_block_places(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                               const BlockShare& share) {
  BlockPlaces at;
  BlockActivations& activations = at.activations;
  activations.recompute = Recompute::block;
  activations.share = share;
  if (share.attention) activations.attention = attention_activations(layout, model, shape, Recompute::block);
  BlockLayout behind = layout;
  if (share.mlp) {
    activations.mlp = mlp_activations(layout, model, shape, Recompute::block, share);
    at.gradients.mlp = mlp_gradients_in_place(layout, model, shape, activations.mlp, share);
  }
  if (share.attention) at.gradients.attention = attention_gradients(behind, model, shape);
  layout.go_behind(behind);
  if (share.experts) {
    activations.experts = experts_activations(layout, model, shape, Recompute::block);
    at.gradients.experts = experts_gradients(layout, model, shape);
  }
  if (share.state_space) {
    activations.state_space = state_space_activations(layout, model, shape, Recompute::block);
    at.gradients.state_space = state_space_gradients(layout, model, shape);
  }
  return at;
}

template <class T>
void block_forward(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                   const BlockMemory<T>& memory, Matrix<T> out) {
  if (at.share.attention) {
    attention_branch_forward<T>(context, block, weights.attention, at.attention, memory,
                                at.share.mlp ? memory.matrix(at.mlp.input, context.model.width) : out);
  }
  if (at.share.mlp) mlp_branch_forward<T>(context, block, weights.mlp, at.mlp, memory, out);
  if (at.share.experts) experts_branch_forward<T>(context, block, weights.experts, at.experts, memory, out);
  if (at.share.state_space) state_space_branch_forward<T>(context, block, weights.state_space, at.state_space, memory, out);
}

namespace {

template <class T>
void compute_again(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                   const BlockMemory<T>& memory) {
  const bool attention = at.share.attention, mlp = at.share.mlp;
  if (attention && at.recompute == Recompute::block && mlp) {
    attention_branch_forward<T>(context, block, weights.attention, at.attention, memory,
                                memory.matrix(at.mlp.input, context.model.width));
  } else if (attention && at.recompute != Recompute::none) {
    attention_activate<T>(context, block, weights.attention, at.attention, memory);
  }
  if (at.recompute != Recompute::block) return;
  if (mlp) mlp_activate<T>(context, weights.mlp, at.mlp, memory);
  if (at.share.experts) experts_activate<T>(context, weights.experts, at.experts, memory);
  if (at.share.state_space) state_space_activate<T>(context, weights.state_space, at.state_space, memory);
}

// Of the branches that only hybrids have.
template <class T>
void hybrid_backward_input(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                           const BlockGradients& work, const BlockMemory<T>& memory, Matrix<T> gradient) {
  if (at.share.experts) {
    experts_branch_backward_input<T>(context, block, weights.experts, at.experts, work.experts, memory, gradient);
  }
  if (at.share.state_space) {
    state_space_branch_backward_input<T>(context, block, weights.state_space, at.state_space, work.state_space, memory,
                                         gradient);
  }
}
template <class T>
void hybrid_backward_weight(const LayerContext& context, const BlockTensors<Compute<T>>& gradients, const BlockActivations& at,
                            const BlockGradients& work, const BlockMemory<T>& memory) {
  if (at.share.experts) experts_branch_backward_weight<T>(context, gradients.experts, at.experts, work.experts, memory);
  if (at.share.state_space) {
    state_space_branch_backward_weight<T>(context, gradients.state_space, at.state_space, work.state_space, memory);
  }
}

}  // namespace

template <class T>
void block_backward_input(const LayerContext& context, int block, const BlockTensors<T>& weights, const BlockActivations& at,
                          const BlockGradients& work, const BlockMemory<T>& memory, Matrix<T> gradient) {
  compute_again<T>(context, block, weights, at, memory);
  hybrid_backward_input<T>(context, block, weights, at, work, memory, gradient);
  if (at.share.mlp) mlp_branch_backward_input<T>(context, block, weights.mlp, at.mlp, work.mlp, memory, gradient);
  if (at.share.attention) {
    attention_branch_backward_input<T>(context, block, weights.attention, at.attention, work.attention, memory, gradient);
  }
}

template <class T>
void whole_backward_others(const LayerContext& context, int block, const BlockTensors<T>& weights,
                           const BlockTensors<Compute<T>>& gradients, const BlockActivations& at, const BlockGradients& work,
                           const BlockMemory<T>& memory, Matrix<T> gradient) {
  compute_again<T>(context, block, weights, at, memory);
  hybrid_backward_input<T>(context, block, weights, at, work, memory, gradient);
  hybrid_backward_weight<T>(context, gradients, at, work, memory);
  if (!at.share.mlp) return;
  mlp_branch_backward_input<T>(context, block, weights.mlp, at.mlp, work.mlp, memory, gradient,
                               at.share.mlp_trained ? &gradients.mlp : nullptr);
}

template <class T>
void whole_backward_attention(const LayerContext& context, int block, const BlockTensors<T>& weights,
                              const BlockTensors<Compute<T>>& gradients, const BlockActivations& at, const BlockGradients& work,
                              const BlockMemory<T>& memory, Matrix<T> gradient) {
  if (!at.share.attention) return;
  attention_branch_backward_input<T>(context, block, weights.attention, at.attention, work.attention, memory, gradient);
  if (!at.share.attention_trained) return;
  attention_branch_backward_weight<T>(context, gradients.attention, at.attention, work.attention, memory);
}

template <class T>
void block_backward_weight(const LayerContext& context, const BlockTensors<Compute<T>>& gradients, const BlockActivations& at,
                           const BlockGradients& work, const BlockMemory<T>& memory) {
  if (at.share.mlp_trained) mlp_branch_backward_weight<T>(context, gradients.mlp, at.mlp, work.mlp, memory);
  if (at.share.attention_trained) {
    attention_branch_backward_weight<T>(context, gradients.attention, at.attention, work.attention, memory);
  }
  hybrid_backward_weight<T>(context, gradients, at, work, memory);
}

#define MINIPIPE_INSTANTIATE(T)                                                                                                \
  template void block_forward<T>(const LayerContext&, int, const BlockTensors<T>&, const BlockActivations&,                    \
                                 const BlockMemory<T>&, Matrix<T>);                                                            \
  template void block_backward_input<T>(const LayerContext&, int, const BlockTensors<T>&, const BlockActivations&,             \
                                        const BlockGradients&, const BlockMemory<T>&, Matrix<T>);                              \
  template void whole_backward_others<T>(const LayerContext&, int, const BlockTensors<T>&, const BlockTensors<Compute<T>>&,    \
                                         const BlockActivations&, const BlockGradients&, const BlockMemory<T>&, Matrix<T>);    \
  template void whole_backward_attention<T>(const LayerContext&, int, const BlockTensors<T>&, const BlockTensors<Compute<T>>&, \
                                            const BlockActivations&, const BlockGradients&, const BlockMemory<T>&, Matrix<T>); \
  template void block_backward_weight<T>(const LayerContext&, const BlockTensors<Compute<T>>&, const BlockActivations&,        \
                                         const BlockGradients&, const BlockMemory<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
