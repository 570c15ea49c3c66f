#include "core/kernels/dropout.hpp"

#include "core/kernels/dropout_packs.hpp"
#include "core/kernels/elementwise.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

template <class T>
struct Apply {
  T* out;
  const T* input;

  template <class Lanes, class V>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t i, V factor) const {
    lanes.store(out + i, lanes.load(input + i) * factor);
  }
};

template <class T>
struct ResidualAdd {
  T* values;
  const T* residual;

  template <class Lanes, class V>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t i, V factor) const {
    lanes.store(values + i, lanes.load(residual + i) + lanes.load(values + i) * factor);
  }
};

}  // namespace

template <class T>
void dropout(const ExecutionSpace& space, Vector<T> out, ConstVector<T> input, const Dropout& options) {
  const std::int64_t count = extent(input, 0);
  require_shape(extent(out, 0) == count && options.probability >= 0 && options.probability < 1, "dropout");
  if (options.probability == 0) {
    if (out.data() != input.data()) {
      copy<T>(space, out, input);
    }
    return;
  }
  const DropoutMask<Compute<T>> mask(options);
  for_dropped("minipipe::dropout::apply", space, count, mask, Apply<T>{out.data(), input.data()});
}

template <class T>
void dropout_residual_add(const ExecutionSpace& space, Vector<T> values, ConstVector<T> residual, const Dropout& options) {
  const std::int64_t count = extent(values, 0);
  require_shape(extent(residual, 0) == count && (residual.data() != values.data() || count == 0) && options.probability >= 0 &&
                    options.probability < 1,
                "dropout_residual_add");
  if (options.probability == 0) {
    residual_add<T>(space, values, residual, values);
    return;
  }
  const DropoutMask<Compute<T>> mask(options);
  for_dropped("minipipe::dropout::residual_add", space, count, mask, ResidualAdd<T>{values.data(), residual.data()});
}

#define MINIPIPE_INSTANTIATE(T)                                                               \
  template void dropout<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>, const Dropout&); \
  template void dropout_residual_add<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>, const Dropout&);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
