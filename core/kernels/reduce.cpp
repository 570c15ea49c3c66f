#include "core/kernels/reduce.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

constexpr std::int64_t block_size = 4096;

void add_blocks(const ExecutionSpace& space, Vector<double> result, ConstVector<double> workspace, std::int64_t blocks,
                bool accumulate) {
  Kokkos::parallel_for(
      "minipipe::reduce::blocks", RowRange(space, 0, 1), KOKKOS_LAMBDA(const std::int64_t) {
        double total = 0;
        for (std::int64_t block = 0; block < blocks; ++block) {
          total += workspace(block);
        }
        result(0) = accumulate ? result(0) + total : total;
      });
}

template <bool Squares, class T>
void blocked_sum(const char* label, const ExecutionSpace& space, Vector<double> result, ConstVector<T> values,
                 Vector<double> workspace, bool accumulate) {
  const std::int64_t count = extent(values, 0);
  const std::int64_t blocks = sum_workspace(count);
  require_shape(extent(result, 0) >= 1 && extent(workspace, 0) >= blocks, label);
  for_rows(
      label, space, blocks, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t block) {
        const std::int64_t first = block * block_size;
        const T* v = values.data() + first;
        const double total =
            row_sum<double>(member, count - first < block_size ? count - first : block_size, [=](const std::int64_t i) {
              const double value = v[i];
              return Squares ? value * value : value;
            });
        row_for(member, 1, [=](const std::int64_t) { workspace(block) = total; });
      });
  add_blocks(space, result, workspace, blocks, accumulate);
}

}  // namespace

std::int64_t sum_workspace(std::int64_t count) { return (count + block_size - 1) / block_size; }

template <class T>
void sum(const ExecutionSpace& space, Vector<double> result, ConstVector<T> values, Vector<double> workspace, bool accumulate) {
  blocked_sum<false>("minipipe::reduce::sum", space, result, values, workspace, accumulate);
}

template <class T>
void sum_of_squares(const ExecutionSpace& space, Vector<double> result, ConstVector<T> values, Vector<double> workspace,
                    bool accumulate) {
  blocked_sum<true>("minipipe::reduce::sum_of_squares", space, result, values, workspace, accumulate);
}

template <class T>
void sum_of_squares(const ExecutionSpace& space, Vector<double> result, ConstVector<T> values, std::int64_t rows,
                    std::int64_t columns, std::int64_t stride, Vector<double> workspace, bool accumulate) {
  const std::int64_t count = rows * columns;
  const std::int64_t blocks = sum_workspace(count);
  const char* const label = "minipipe::reduce::strided_sum_of_squares";
  require_shape(count == 0 || (rows - 1) * stride + columns <= extent(values, 0), label);
  require_shape(extent(result, 0) >= 1 && extent(workspace, 0) >= blocks, label);
  const T* v = values.data();
  for_rows(
      label, space, blocks, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t block) {
        const std::int64_t first = block * block_size;
        const double total =
            row_sum<double>(member, count - first < block_size ? count - first : block_size, [=](const std::int64_t i) {
              const double value = v[(first + i) / columns * stride + (first + i) % columns];
              return value * value;
            });
        row_for(member, 1, [=](const std::int64_t) { workspace(block) = total; });
      });
  add_blocks(space, result, workspace, blocks, accumulate);
}

double read_scalar(const ExecutionSpace& space, ConstVector<double> result) {
  double value = 0;
  const Kokkos::View<double, Kokkos::HostSpace, Unmanaged> host(&value);
  Kokkos::deep_copy(space, host, Kokkos::View<const double, Kokkos::LayoutRight, MemorySpace, Unmanaged>(result.data()));
  fence(space, "before the host reads a sum, because the copy is asynchronous");
  return value;
}

#define MINIPIPE_INSTANTIATE(T)                                                                                      \
  template void sum<T>(const ExecutionSpace&, Vector<double>, ConstVector<T>, Vector<double>, bool);                 \
  template void sum_of_squares<T>(const ExecutionSpace&, Vector<double>, ConstVector<T>, Vector<double>, bool);      \
  template void sum_of_squares<T>(const ExecutionSpace&, Vector<double>, ConstVector<T>, std::int64_t, std::int64_t, \
                                  std::int64_t, Vector<double>, bool);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)

}  // namespace minipipe::core
