#include "core/kernels/columns.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

template <class T>
void copy_columns(const ExecutionSpace& space, Matrix<T> out, int out_column, ConstMatrix<T> input, int column, int columns) {
  require_shape(out.extent(0) == input.extent(0) && out_column >= 0 && column >= 0 && columns >= 0 &&
                    out_column + columns <= static_cast<int>(out.extent(1)) &&
                    column + columns <= static_cast<int>(input.extent(1)),
                "copy_columns");
  if (columns == 0) return;
  T* result = out.data() + out_column;
  const T* values = input.data() + column;
  const std::int64_t out_stride = extent(out, 1), stride = extent(input, 1), count = columns;
  for_rows(
      "minipipe::columns::copy", space, extent(out, 0), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t row) {
        T* to = result + row * out_stride;
        const T* from = values + row * stride;
        row_for(member, count, [=](const std::int64_t c) { to[c] = static_cast<Compute<T>>(from[c]); });
      });
}

#define MINIPIPE_INSTANTIATE(T) template void copy_columns<T>(const ExecutionSpace&, Matrix<T>, int, ConstMatrix<T>, int, int);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)
#undef MINIPIPE_INSTANTIATE

}  // namespace minipipe::core
