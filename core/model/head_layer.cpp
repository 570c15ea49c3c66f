#include "core/model/head_layer.hpp"

#include <algorithm>

#include "core/kernels/cross_entropy.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

namespace {

// body(first, count) for each chunk of rows, in ascending order.
template <class Body>
void for_chunks(int rows, const Body& body) {
  const int chunk = head_chunk_rows(rows);
  for (int first = 0; first < rows; first += chunk) body(first, std::min(chunk, rows - first));
}

template <class T>
Matrix<T> logits_of(const LayerContext& context, const HeadActivations& at, const BlockMemory<T>& memory, int first,
                    int count) {
  const int vocab = context.model.vocab;
  if (at.kind == HeadLogits::kept) return rows_of(memory.matrix(at.logits, vocab), first, count);
  return matrix_in<T>(memory.of(at.logits), at.logits.offset, count, vocab);
}

// What the output projection reads.
template <class T>
Matrix<T> hidden_of(const LayerContext& context, const HeadActivations& at, const BlockMemory<T>& memory, int first,
                    int count) {
  return rows_of(memory.matrix(at.norm.out, context.model.width), first, count);
}

// Of the weight gradient that the first chunk finds.
float factor_of_old(const LayerContext& context, int first) { return context.fresh_gradients && first == 0 ? 0.0F : 1.0F; }

}  // namespace

int head_chunk_rows(int rows) {
  constexpr int least = 256, eighths = 8, multiple = 32;
  const int eighth = (rows + eighths - 1) / eighths;
  return std::max(least, (eighth + multiple - 1) / multiple * multiple);
}

HeadActivations head_activations(BlockLayout& layout, const ModelConfig& model, const TrainShape& shape, HeadLogits logits) {
  const int rows = shape.rows();
  const auto [until_weights, until_inputs] = backward_lifetimes(logits == HeadLogits::again);
  const int logits_rows = logits == HeadLogits::kept ? rows : std::min(rows, head_chunk_rows(rows));
  HeadActivations at;
  at.kind = logits;
  at.input = layout.take(Lifetime::kept, static_cast<std::size_t>(rows) * model.width);
  at.norm = norm_places(layout, until_weights, model, shape);
  at.logits = layout.take(until_inputs, static_cast<std::size_t>(logits_rows) * model.vocab);
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
  for_chunks(memory.rows, [&](int first, int count) {
    const Matrix<T> logits = logits_of<T>(context, at, memory, first, count);
    gemm<T>(context.space, false, true, 1, hidden_of<T>(context, at, memory, first, count), weights.weight, 0, logits);
    cross_entropy_loss<T>(context.space, slice(losses, first, count), logits, slice(targets, first, count));
  });
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
                          Compute<T> loss_scale, Vector<Compute<T>> losses, Matrix<Compute<T>> weight_gradient) {
  const ExecutionSpace& space = context.space;
  const bool again = at.kind == HeadLogits::again;
  const Matrix<T> gradient = memory.matrix(norm_gradient, context.model.width);
  if (again) head_norm<T>(context, weights, at, memory);
  for_chunks(memory.rows, [&](int first, int count) {
    const Matrix<T> logits = logits_of<T>(context, at, memory, first, count);
    const Matrix<T> hidden = hidden_of<T>(context, at, memory, first, count);
    if (again) gemm<T>(space, false, true, 1, hidden, weights.weight, 0, logits);
    cross_entropy_gradient<T>(space, slice(losses, first, count), logits, slice(targets, first, count), loss_scale);
    gemm<T>(space, false, false, 1, logits, weights.weight, 0, rows_of(gradient, first, count));
    if (again) gemm<T, Compute<T>>(space, true, false, 1, logits, hidden, factor_of_old(context, first), weight_gradient);
  });
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
  for_chunks(memory.rows, [&](int first, int count) {
    gemm<T, Compute<T>>(context.space, true, false, 1, logits_of<T>(context, at, memory, first, count),
                        hidden_of<T>(context, at, memory, first, count), factor_of_old(context, first), gradients.weight);
  });
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
                                        const BlockMemory<T>&, ConstVector<std::int32_t>, Compute<T>, Vector<Compute<T>>,   \
                                        Matrix<Compute<T>>);                                                                \
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
