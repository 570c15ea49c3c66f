#include "core/kernels/dropout.hpp"

#include "core/kernels/elementwise.hpp"
#include "core/kernels/loops.hpp"
#include "core/kernels/philox.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

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
  T* result = out.data();
  const T* values = input.data();
  for_elements(
      "minipipe::dropout::apply", space, (count + 3) / 4, KOKKOS_LAMBDA(const std::int64_t group) {
        Compute<T> factors[4];
        mask.factors(factors, static_cast<std::uint64_t>(group));
        for (int l = 0; l < 4; ++l) {
          const std::int64_t i = 4 * group + l;
          if (i < count) {
            result[i] = values[i] * factors[l];
          }
        }
      });
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
  T* const result = values.data();
  const T* const kept = residual.data();
  for_elements(
      "minipipe::dropout::residual_add", space, (count + 3) / 4, KOKKOS_LAMBDA(const std::int64_t group) {
        Compute<T> factors[4];
        mask.factors(factors, static_cast<std::uint64_t>(group));
        for (int l = 0; l < 4; ++l) {
          const std::int64_t i = 4 * group + l;
          if (i < count) {
            result[i] = kept[i] + result[i] * factors[l];
          }
        }
      });
}

template void dropout_residual_add<float>(const ExecutionSpace&, Vector<float>, ConstVector<float>, const Dropout&);
template void dropout_residual_add<double>(const ExecutionSpace&, Vector<double>, ConstVector<double>, const Dropout&);
template void dropout_residual_add<bf16>(const ExecutionSpace&, Vector<bf16>, ConstVector<bf16>, const Dropout&);
template void dropout<bf16>(const ExecutionSpace&, Vector<bf16>, ConstVector<bf16>, const Dropout&);
template void dropout<float>(const ExecutionSpace&, Vector<float>, ConstVector<float>, const Dropout&);
template void dropout<double>(const ExecutionSpace&, Vector<double>, ConstVector<double>, const Dropout&);

}  // namespace minipipe::core
