// Layers that cannot be built yet.
#include "core/model/block.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {
[[noreturn]] void refuse() { throw InputError("model.pattern: layers # and M cannot be built yet; use * and -"); }
}  // namespace

ExpertsActivations experts_activations(BlockLayout&, const ModelConfig&, const TrainShape&, Recompute) { refuse(); }
ExpertsGradients experts_gradients(BlockLayout&, const ModelConfig&, const TrainShape&) { refuse(); }
StateSpaceActivations state_space_activations(BlockLayout&, const ModelConfig&, const TrainShape&, Recompute) { refuse(); }
StateSpaceGradients state_space_gradients(BlockLayout&, const ModelConfig&, const TrainShape&) { refuse(); }

template <class T>
ExpertsTensors<T> experts_tensors(TensorCursor<T>&, const ModelConfig&) {
  refuse();
}
template <class T>
StateSpaceTensors<T> state_space_tensors(TensorCursor<T>&, const ModelConfig&) {
  refuse();
}

#define MINIPIPE_BRANCH(T, branch, Tensors, Activations, Gradients)                                                         \
  template <>                                                                                                               \
  void branch##_activate<T>(const LayerContext&, const Tensors<T>&, const Activations&, const BlockMemory<T>&) {            \
    refuse();                                                                                                               \
  }                                                                                                                         \
  template <>                                                                                                               \
  void branch##_branch_forward<T>(const LayerContext&, int, const Tensors<T>&, const Activations&, const BlockMemory<T>&,   \
                                  Matrix<T>) {                                                                              \
    refuse();                                                                                                               \
  }                                                                                                                         \
  template <>                                                                                                               \
  void branch##_branch_backward_input<T>(const LayerContext&, int, const Tensors<T>&, const Activations&, const Gradients&, \
                                         const BlockMemory<T>&, Matrix<T>) {                                                \
    refuse();                                                                                                               \
  }                                                                                                                         \
  template <>                                                                                                               \
  void branch##_branch_backward_weight<T>(const LayerContext&, const Tensors<Compute<T>>&, const Activations&,              \
                                          const Gradients&, const BlockMemory<T>&) {                                        \
    refuse();                                                                                                               \
  }
#define MINIPIPE_INSTANTIATE(T)                                                               \
  template ExpertsTensors<T> experts_tensors<T>(TensorCursor<T>&, const ModelConfig&);        \
  template StateSpaceTensors<T> state_space_tensors<T>(TensorCursor<T>&, const ModelConfig&); \
  MINIPIPE_BRANCH(T, experts, ExpertsTensors, ExpertsActivations, ExpertsGradients)           \
  MINIPIPE_BRANCH(T, state_space, StateSpaceTensors, StateSpaceActivations, StateSpaceGradients)
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
