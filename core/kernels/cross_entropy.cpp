#include "core/kernels/cross_entropy.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

template <class T>
void cross_entropy_loss(const ExecutionSpace& space, Vector<T> losses, ConstMatrix<T> logits,
                        ConstVector<std::int32_t> targets) {
  const std::int64_t rows = extent(logits, 0), columns = extent(logits, 1);
  require_shape(extent(losses, 0) == rows && extent(targets, 0) == rows, "cross_entropy_loss");
  for_rows(
      "minipipe::cross_entropy::loss", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const T* x = row_pointer(logits, row);
        const std::int32_t target = targets(row);
        const T largest = row_max<T>(member, columns, lowest_value<T>, [=](const std::int64_t c) { return x[c]; });
        const T total = row_sum<T>(member, columns, [=](const std::int64_t c) { return exponential(x[c] - largest); });
        const T loss = target < 0 ? T(0) : logarithm(total) + (largest - x[target]);
        row_for(member, 1, [=](const std::int64_t) { losses(row) = loss; });
      });
}

template <class T>
void cross_entropy_gradient(const ExecutionSpace& space, Vector<T> losses, Matrix<T> logits, ConstVector<std::int32_t> targets,
                            T scale) {
  const std::int64_t rows = extent(logits, 0), columns = extent(logits, 1);
  require_shape(extent(losses, 0) == rows && extent(targets, 0) == rows, "cross_entropy_gradient");
  for_rows(
      "minipipe::cross_entropy::gradient", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        T* x = row_pointer(logits, row);
        const std::int32_t target = targets(row);
        if (target < 0) {
          row_for(member, columns, [=](const std::int64_t c) { x[c] = 0; });
          row_for(member, 1, [=](const std::int64_t) { losses(row) = 0; });
          return;
        }
        const T largest = row_max<T>(member, columns, lowest_value<T>, [=](const std::int64_t c) { return x[c]; });
        const T below = largest - x[target];
        // The target's entry p - 1 would cancel when the model is sure; it is minus the sum of the others.
        const T others = row_sum<T>(member, columns, [=](const std::int64_t c) {
          const T value = exponential(x[c] - largest);
          x[c] = value;
          return c == target ? T(0) : value;
        });
        const T total = others + exponential(-below);
        const T factor = scale / total;
        row_for(member, columns, [=](const std::int64_t c) { x[c] *= factor; });
        row_for(member, 1, [=](const std::int64_t) {
          x[target] = -others * factor;
          losses(row) = logarithm(total) + below;
        });
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                     \
  template void cross_entropy_loss<T>(const ExecutionSpace&, Vector<T>, ConstMatrix<T>, ConstVector<std::int32_t>); \
  template void cross_entropy_gradient<T>(const ExecutionSpace&, Vector<T>, Matrix<T>, ConstVector<std::int32_t>, T);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)

}  // namespace minipipe::core
