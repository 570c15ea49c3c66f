#include "core/kernels/cross_entropy.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/math.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

// exp(x - largest) stays in the place of x, unless that would round it: then it is formed again.
template <class T>
KOKKOS_INLINE_FUNCTION void keep(T* place, T exponential_of_place) {
  *place = exponential_of_place;
}
KOKKOS_INLINE_FUNCTION void keep(bf16*, float) {}
template <class T>
KOKKOS_INLINE_FUNCTION T kept(T value, T) {
  return value;
}
KOKKOS_INLINE_FUNCTION float kept(bf16 value, float largest) { return exponential(value - largest); }

}  // namespace

template <class T>
void cross_entropy_loss(const ExecutionSpace& space, Vector<Compute<T>> losses, ConstMatrix<T> logits,
                        ConstVector<std::int32_t> targets) {
  using C = Compute<T>;
  const std::int64_t rows = extent(logits, 0), columns = extent(logits, 1);
  require_shape(extent(losses, 0) == rows && extent(targets, 0) == rows, "cross_entropy_loss");
  for_rows(
      "minipipe::cross_entropy::loss", space, rows, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        const T* x = row_pointer(logits, row);
        const std::int32_t target = targets(row);
        const C largest =
            row_max<C>(member, columns, lowest_value<C>, [=](const std::int64_t c) { return static_cast<C>(x[c]); });
        const C total = row_sum<C>(member, columns, [=](const std::int64_t c) { return exponential(x[c] - largest); });
        const C loss = target < 0 ? C(0) : logarithm(total) + (largest - x[target]);
        row_for(member, 1, [=](const std::int64_t) { losses(row) = loss; });
      });
}

template <class T>
void cross_entropy_gradient(const ExecutionSpace& space, Vector<Compute<T>> losses, Matrix<T> logits,
                            ConstVector<std::int32_t> targets, Compute<T> scale) {
  using C = Compute<T>;
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
        const C largest =
            row_max<C>(member, columns, lowest_value<C>, [=](const std::int64_t c) { return static_cast<C>(x[c]); });
        const C below = largest - x[target];
        // The target's entry p - 1 would cancel when the model is sure; it is minus the sum of the others.
        const C others = row_sum<C>(member, columns, [=](const std::int64_t c) {
          const C value = exponential(x[c] - largest);
          keep(x + c, value);
          return c == target ? C(0) : value;
        });
        const C total = others + exponential(-below);
        const C factor = scale / total;
        row_for(member, columns, [=](const std::int64_t c) { x[c] = kept(x[c], largest) * factor; });
        row_for(member, 1, [=](const std::int64_t) {
          x[target] = -others * factor;
          losses(row) = logarithm(total) + below;
        });
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                              \
  template void cross_entropy_loss<T>(const ExecutionSpace&, Vector<Compute<T>>, ConstMatrix<T>, ConstVector<std::int32_t>); \
  template void cross_entropy_gradient<T>(const ExecutionSpace&, Vector<Compute<T>>, Matrix<T>, ConstVector<std::int32_t>,   \
                                          Compute<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
