#include "core/model/experts_branch.hpp"

#include "core/kernels/router.hpp"
#include "core/kernels/swiglu.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

namespace {

// The sizes, and the arrays that the passes share.
template <class T>
struct ExpertArrays {
  using C = Compute<T>;
  const BlockMemory<T>& memory;
  int width, hidden, experts, choices;
  std::int64_t pairs;  // R k
  ExpertPlan plan;
  Matrix<std::int32_t> chosen;       // [R, k]
  Matrix<C> weights, probabilities;  // [R, k], [R, E]
  Vector<C> load;                    // [E]

  ExpertArrays(const LayerContext& context, const ExpertsActivations& at, const BlockMemory<T>& in)
      : memory(in),
        width(context.model.width),
        hidden(expert_width(context.model)),
        experts(context.model.experts),
        choices(context.model.expert_choices),
        pairs(static_cast<std::int64_t>(in.rows) * choices),
        plan{in.integers(at.counts, experts), in.integers(at.offsets, experts + 1), in.integers(at.slots, pairs),
             in.integers(at.pairs, pairs)},
        chosen(slice_matrix(in.integers(at.choices, pairs), 0, in.rows, choices)),
        weights(in.wide_matrix(at.weights, choices)),
        probabilities(in.wide_matrix(at.probabilities, experts)),
        load(in.vector(at.load, experts)) {}

  // `count` slots from `first` on; all of them, with or without a row.
  Matrix<T> slots(Place place, int columns, std::int64_t first, std::int64_t count) const {
    return rows_of(matrix_in<T>(memory.of(place), place.offset, pairs, columns), first, count);
  }
  Matrix<T> slots(Place place, int columns) const { return slots(place, columns, 0, pairs); }
};

// The slots of each expert. What was read last is kept, because a backward mostly follows a pass over the same rows: a plan's
// offsets change only where it is `planned` anew, which reads them in any case.
const std::vector<std::int32_t>& offsets_on_host(const ExecutionSpace& space, const ExpertPlan& plan, bool planned) {
  thread_local std::vector<std::int32_t> offsets;
  thread_local const std::int32_t* source = nullptr;
  if (planned || source != plan.offsets.data()) {
    source = nullptr;  // unless all goes well
    read_offsets(space, offsets, plan.offsets);
    source = plan.offsets.data();
  }
  return offsets;
}

// body(expert, its first slot, their number) for experts that have rows: libraries differ in what they make of empty matrices.
template <class Body>
void for_each_expert(const std::vector<std::int32_t>& offsets, const Body& body) {
  for (std::size_t e = 0; e + 1 < offsets.size(); ++e) {
    if (offsets[e + 1] > offsets[e]) body(e, offsets[e], offsets[e + 1] - offsets[e]);
  }
}

}  // namespace

template <class T>
ExpertsTensors<T> experts_tensors(TensorCursor<T>& next, const ModelConfig& model) {
  ExpertsTensors<T> tensors;
  tensors.norm = next.norm();
  tensors.router = next.matrix();
  for (int e = 0; e < model.experts; ++e) {
    ExpertTensors<T> expert;
    expert.gate = next.matrix();
    expert.up = next.matrix();
    expert.down = next.matrix();
    tensors.experts.push_back(expert);
  }
  return tensors;
}

ExpertsActivations experts_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape,
                                       Recompute recompute) {
  const std::size_t rows = shape.rows(), experts = model.experts, pairs = rows * model.expert_choices;
  const std::size_t hidden = pairs * expert_width(model);
  const auto [until_weights, until_inputs] = backward_lifetimes(recompute == Recompute::block);
  const auto integers = [&](Lifetime lifetime, std::size_t count) {
    return layout.take_wide(lifetime, wide_room<std::int32_t>(count));
  };
  ExpertsActivations at;
  at.input = layout.take(Lifetime::kept, rows * model.width);
  at.norm = norm_places(layout, until_weights, model, shape);
  at.probabilities = layout.take_wide(until_inputs, rows * experts);
  at.weights = layout.take_wide(until_inputs, pairs);
  at.choices = integers(until_inputs, pairs);
  at.counts = integers(until_inputs, experts);
  at.offsets = integers(until_weights, experts + 1);
  at.slots = integers(until_inputs, pairs);
  at.pairs = integers(until_inputs, pairs);
  at.load = layout.take_wide(until_inputs, experts);
  at.gathered = layout.take(until_weights, pairs * model.width);
  at.gate = layout.take(until_inputs, hidden);
  at.up = layout.take(until_inputs, hidden);
  at.hidden = layout.take(until_weights, hidden);
  at.expert_out = layout.take(until_inputs, pairs * model.width);
  at.balance = layout.take_wide(Lifetime::kept, wide_room<double>(1));
  at.logits = layout.take_wide(Lifetime::passing, rows * experts);
  at.integer_workspace = integers(Lifetime::passing, expert_workspace(shape.rows(), model.experts));
  return at;
}

ExpertsGradients experts_gradients(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape) {
  const std::size_t rows = shape.rows(), pairs = rows * model.expert_choices, hidden = pairs * expert_width(model);
  ExpertsGradients at;
  at.norm = layout.take(Lifetime::pending, rows * model.width);
  at.logits = layout.take(Lifetime::pending, rows * model.experts);
  at.gate = layout.take(Lifetime::pending, hidden);
  at.up = layout.take(Lifetime::pending, hidden);
  at.expert_out = layout.take(Lifetime::pending, pairs * model.width);
  at.weights = layout.take_wide(Lifetime::passing, pairs);
  return at;
}

template <class T>
void experts_activate(const LayerContext& context, const ExpertsTensors<T>& weights, const ExpertsActivations& at,
                      const BlockMemory<T>& memory) {
  using C = Compute<T>;
  const ExecutionSpace& space = context.space;
  const ModelConfig& model = context.model;
  const ExpertArrays<T> arrays(context, at, memory);
  const int width = arrays.width, hidden = arrays.hidden;
  norm_forward<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, width));
  const Matrix<T> norm = memory.matrix(at.norm.out, width);
  const Matrix<C> logits = memory.wide_matrix(at.logits, arrays.experts);
  gemm<T, C>(space, false, true, 1, norm, weights.router, 0, logits);
  router_forward<C>(space, arrays.chosen, arrays.weights, arrays.probabilities, logits);
  const std::int64_t capacity =
      model.expert_capacity > 0 ? expert_capacity(model.expert_capacity, memory.rows, arrays.choices, arrays.experts) : 0;
  plan_experts(space, arrays.plan, memory.integers(at.integer_workspace, expert_workspace(memory.rows, arrays.experts)),
               arrays.chosen, capacity);
  // The mean probabilities lie where the logits were.
  router_balance<C>(space, memory.doubles(at.balance, 1), arrays.load, memory.vector(at.logits, arrays.experts),
                    arrays.plan.counts, arrays.probabilities);
  gather_rows<T>(space, arrays.slots(at.gathered, width), norm, arrays.plan);

  const std::vector<std::int32_t>& offsets = offsets_on_host(space, arrays.plan, true);
  for_each_expert(offsets, [&](std::size_t e, std::int64_t first, std::int64_t count) {
    const ExpertTensors<T>& expert = weights.experts[e];
    const Matrix<T> gathered = arrays.slots(at.gathered, width, first, count);
    gemm<T>(space, false, true, 1, gathered, expert.gate, 0, arrays.slots(at.gate, hidden, first, count));
    gemm<T>(space, false, true, 1, gathered, expert.up, 0, arrays.slots(at.up, hidden, first, count));
  });
  const auto all = [&](Place place) { return flatten(arrays.slots(place, hidden, 0, offsets.back())); };
  swiglu_forward<T>(space, all(at.hidden), all(at.gate), all(at.up));
  for_each_expert(offsets, [&](std::size_t e, std::int64_t first, std::int64_t count) {
    gemm<T>(space, false, true, 1, arrays.slots(at.hidden, hidden, first, count), weights.experts[e].down, 0,
            arrays.slots(at.expert_out, width, first, count));
  });
}

template <class T>
void experts_branch_forward(const LayerContext& context, int block, const ExpertsTensors<T>& weights,
                            const ExpertsActivations& at, const BlockMemory<T>& memory, Matrix<T> out) {
  experts_activate<T>(context, weights, at, memory);
  const ExpertArrays<T> arrays(context, at, memory);
  combine_rows<T>(context.space, out, arrays.slots(at.expert_out, arrays.width), arrays.weights, arrays.plan);
  dropout_residual_add<T>(context.space, flatten(out), flatten(memory.matrix(at.input, arrays.width)),
                          context.dropout(mlp_residual_dropout(block)));
}

template <class T>
void experts_branch_backward_input(const LayerContext& context, int block, const ExpertsTensors<T>& weights,
                                   const ExpertsActivations& at, const ExpertsGradients& work, const BlockMemory<T>& memory,
                                   Matrix<T> gradient) {
  using C = Compute<T>;
  const ExecutionSpace& space = context.space;
  const ExpertArrays<T> arrays(context, at, memory);
  const int width = arrays.width, hidden = arrays.hidden;
  // Holds the gradient of the combined rows until it is used, then that of the norm's output.
  const Matrix<T> norm_gradient = memory.matrix(work.norm, width);
  dropout<T>(space, flatten(norm_gradient), flatten(gradient), context.dropout(mlp_residual_dropout(block)));
  const Matrix<C> weights_gradient = memory.wide_matrix(work.weights, arrays.choices);
  combine_rows_backward<T>(space, arrays.slots(work.expert_out, width), weights_gradient, norm_gradient,
                           arrays.slots(at.expert_out, width), arrays.weights, arrays.plan);
  const Matrix<T> logits_gradient = memory.matrix(work.logits, arrays.experts);
  router_backward<T>(space, logits_gradient, weights_gradient, arrays.chosen, arrays.weights, arrays.probabilities, arrays.load,
                     static_cast<C>(context.balance_scale));
  gemm<T>(space, false, false, 1, logits_gradient, weights.router, 0, norm_gradient);

  const std::vector<std::int32_t>& offsets = offsets_on_host(space, arrays.plan, false);
  // The gradient of the activation's output lives where that of its last input comes.
  for_each_expert(offsets, [&](std::size_t e, std::int64_t first, std::int64_t count) {
    gemm<T>(space, false, false, 1, arrays.slots(work.expert_out, width, first, count), weights.experts[e].down, 0,
            arrays.slots(work.up, hidden, first, count));
  });
  const auto all = [&](Place place) { return flatten(arrays.slots(place, hidden, 0, offsets.back())); };
  swiglu_backward<T>(space, all(work.gate), all(work.up), all(work.up), all(at.gate), all(at.up));
  // The experts' outputs are no longer needed: the gradient of the gathered rows lies there.
  for_each_expert(offsets, [&](std::size_t e, std::int64_t first, std::int64_t count) {
    const ExpertTensors<T>& expert = weights.experts[e];
    const Matrix<T> gathered_gradient = arrays.slots(at.expert_out, width, first, count);
    gemm<T>(space, false, false, 1, arrays.slots(work.gate, hidden, first, count), expert.gate, 0, gathered_gradient);
    gemm<T>(space, false, false, 1, arrays.slots(work.up, hidden, first, count), expert.up, 1, gathered_gradient);
  });
  gather_rows_backward<T>(space, norm_gradient, arrays.slots(at.expert_out, width), arrays.plan, true);
  norm_backward_input<T>(context, weights.norm, at.norm, memory, memory.matrix(at.input, width), norm_gradient, gradient, true);
}

template <class T>
void experts_branch_backward_weight(const LayerContext& context, const ExpertsTensors<Compute<T>>& gradients,
                                    const ExpertsActivations& at, const ExpertsGradients& work, const BlockMemory<T>& memory) {
  using C = Compute<T>;
  const ExecutionSpace& space = context.space;
  const ExpertArrays<T> arrays(context, at, memory);
  const int width = arrays.width, hidden = arrays.hidden;
  for_each_expert(offsets_on_host(space, arrays.plan, false), [&](std::size_t e, std::int64_t first, std::int64_t count) {
    const ExpertTensors<C>& expert = gradients.experts[e];
    const Matrix<T> gathered = arrays.slots(at.gathered, width, first, count);
    gemm<T, C>(space, true, false, 1, arrays.slots(work.expert_out, width, first, count),
               arrays.slots(at.hidden, hidden, first, count), 1, expert.down);
    gemm<T, C>(space, true, false, 1, arrays.slots(work.gate, hidden, first, count), gathered, 1, expert.gate);
    gemm<T, C>(space, true, false, 1, arrays.slots(work.up, hidden, first, count), gathered, 1, expert.up);
  });
  gemm<T, C>(space, true, false, 1, memory.matrix(work.logits, arrays.experts), memory.matrix(at.norm.out, width), 1,
             gradients.router);
  norm_backward_weight<T>(context, gradients.norm, at.norm, memory, memory.matrix(at.input, width),
                          memory.matrix(work.norm, width));
}

#define MINIPIPE_INSTANTIATE(T)                                                                                             \
  template ExpertsTensors<T> experts_tensors<T>(TensorCursor<T>&, const ModelConfig&);                                      \
  template void experts_activate<T>(const LayerContext&, const ExpertsTensors<T>&, const ExpertsActivations&,               \
                                    const BlockMemory<T>&);                                                                 \
  template void experts_branch_forward<T>(const LayerContext&, int, const ExpertsTensors<T>&, const ExpertsActivations&,    \
                                          const BlockMemory<T>&, Matrix<T>);                                                \
  template void experts_branch_backward_input<T>(const LayerContext&, int, const ExpertsTensors<T>&,                        \
                                                 const ExpertsActivations&, const ExpertsGradients&, const BlockMemory<T>&, \
                                                 Matrix<T>);                                                                \
  template void experts_branch_backward_weight<T>(const LayerContext&, const ExpertsTensors<Compute<T>>&,                   \
                                                  const ExpertsActivations&, const ExpertsGradients&, const BlockMemory<T>&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
