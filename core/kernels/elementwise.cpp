#include "core/kernels/elementwise.hpp"

#include "core/kernels/pack_loops.hpp"
#include "core/kernels/pieces.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

template <class To, class From>
struct Convert {
  To* out;
  const From* values;

  template <class Lanes>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t i) const {
    lanes.store(out + i, lanes.load(values + i));
  }
};

template <class T>
struct Filled {
  T* values;
  std::int64_t count;
};

}  // namespace

template <class T>
void residual_add(const ExecutionSpace& space, Vector<T> out, ConstVector<T> a, ConstVector<T> b) {
  require_shape(out.extent(0) == a.extent(0) && out.extent(0) == b.extent(0), "residual_add");
  T* result = out.data();
  const T* left = a.data();
  const T* right = b.data();
  for_elements(
      "minipipe::residual::add", space, extent(out, 0),
      KOKKOS_LAMBDA(const std::int64_t i) { result[i] = left[i] + right[i]; });
}

template <class T>
void scale(const ExecutionSpace& space, Vector<T> values, T factor) {
  T* v = values.data();
  for_elements(
      "minipipe::elementwise::scale", space, extent(values, 0), KOKKOS_LAMBDA(const std::int64_t i) { v[i] *= factor; });
}

template <class T>
void fill(const ExecutionSpace& space, Vector<T> values, T value) {
  T* v = values.data();
  for_elements(
      "minipipe::elementwise::fill", space, extent(values, 0), KOKKOS_LAMBDA(const std::int64_t i) { v[i] = value; });
}

template <class T>
void fill(const ExecutionSpace& space, std::span<const Vector<T>> arrays, std::type_identity_t<T> value) {
  PieceTable<Filled<T>> table;
  for (const Vector<T>& array : arrays) {
    table.add({array.data(), extent(array, 0)});
    if (!table.full() && &array != &arrays.back()) continue;
    for_pieces(
        "minipipe::elementwise::fill", space, table,
        KOKKOS_LAMBDA(const Filled<T>& piece, const std::int64_t i) { piece.values[i] = value; });
    table = {};
  }
}

template <class T>
void copy(const ExecutionSpace& space, Vector<T> out, ConstVector<T> values) {
  require_shape(out.extent(0) == values.extent(0), "copy");
  T* result = out.data();
  const T* v = values.data();
  for_elements(
      "minipipe::elementwise::copy", space, extent(out, 0),
      KOKKOS_LAMBDA(const std::int64_t i) { result[i] = static_cast<Compute<T>>(v[i]); });
}

template <class To, class From>
void convert(const ExecutionSpace& space, Vector<To> out, ConstVector<From> values) {
  require_shape(out.extent(0) == values.extent(0), "convert");
  for_packs<float>("minipipe::elementwise::convert", space, extent(out, 0), Convert<To, From>{out.data(), values.data()});
}

template void convert<float, bf16>(const ExecutionSpace&, Vector<float>, ConstVector<bf16>);
template void convert<bf16, float>(const ExecutionSpace&, Vector<bf16>, ConstVector<float>);
template void residual_add<bf16>(const ExecutionSpace&, Vector<bf16>, ConstVector<bf16>, ConstVector<bf16>);
template void copy<bf16>(const ExecutionSpace&, Vector<bf16>, ConstVector<bf16>);

#define MINIPIPE_INSTANTIATE(T)                                                                    \
  template void residual_add<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>, ConstVector<T>); \
  template void scale<T>(const ExecutionSpace&, Vector<T>, T);                                     \
  template void fill<T>(const ExecutionSpace&, Vector<T>, T);                                      \
  template void fill<T>(const ExecutionSpace&, std::span<const Vector<T>>, T);                     \
  template void copy<T>(const ExecutionSpace&, Vector<T>, ConstVector<T>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)

}  // namespace minipipe::core
