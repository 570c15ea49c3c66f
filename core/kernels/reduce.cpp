#include "core/kernels/reduce.hpp"

#include "core/kernels/loops.hpp"
#include "core/kernels/pieces.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

constexpr std::int64_t block_size = 4096;

void add_blocks(const ExecutionSpace& space, Vector<double> result, ConstVector<double> workspace, std::int64_t blocks,
                bool accumulate) {
  for_rows(
      "minipipe::reduce::blocks", space, 1, KOKKOS_LAMBDA(const RowMember& member, std::int64_t) {
        const double total = sum_of_blocks(member, workspace.data(), blocks);
        row_for(member, 1, [=](const std::int64_t) { result(0) = accumulate ? result(0) + total : total; });
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

// What a launch is told of a rectangle.
template <class T>
struct SquareSource {
  const T* values;
  std::int64_t count, columns, stride;
};

// workspace(b) = the sum of squares of block b of the sources, and results(p) = that of source p.
template <class T>
void sums_of_squares(const ExecutionSpace& space, Vector<double> results, const PieceTable<SquareSource<T>>& table,
                     Vector<double> workspace) {
  for_rows(
      "minipipe::reduce::sums_of_squares", space, table.blocks(), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t b) {
        const PartOfPiece<SquareSource<T>> part = table.part(b);
        const T* const v = part.piece.values;
        const std::int64_t first = part.first, count = part.count;
        const std::int64_t columns = part.piece.columns, stride = part.piece.stride;
        double total = 0;
        if (columns == stride) {
          total = row_sum<double>(member, count, [=](const std::int64_t i) {
            const double value = v[first + i];
            return value * value;
          });
        } else {
          total = row_sum<double>(member, count, [=](const std::int64_t i) {
            const double value = v[(first + i) / columns * stride + (first + i) % columns];
            return value * value;
          });
        }
        row_for(member, 1, [=](const std::int64_t) { workspace(b) = total; });
      });
  sum_blocks("minipipe::reduce::blocks_of_squares", space, results, 0, table, ConstVector<double>(workspace));
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
void sums_of_squares(const ExecutionSpace& space, Vector<double> results, std::span<const SquareRectangle<T>> rectangles,
                     Vector<double> workspace) {
  static_assert(piece_block == block_size, "blocks are those of sum_of_squares");
  require_shape(rectangles.size() <= results.size(), "sums_of_squares");
  std::int64_t result = 0;
  PieceTable<SquareSource<T>> table;
  for (const SquareRectangle<T>& r : rectangles) {
    // Runs without a gap are one run.
    table.add({r.values, r.rows * r.columns, r.columns, r.rows == 1 ? r.columns : r.stride});
    if (!table.full() && &r != &rectangles.back()) continue;
    require_shape(table.blocks() <= extent(workspace, 0), "sums_of_squares");
    sums_of_squares<T>(space, slice<double>(results, result, table.pieces()), table, workspace);
    result += table.pieces();
    table = {};
  }
}

double read_scalar(const ExecutionSpace& space, ConstVector<double> result) {
  double value = 0;
  const Kokkos::View<double, Kokkos::HostSpace, Unmanaged> host(&value);
  Kokkos::deep_copy(space, host, Kokkos::View<const double, Kokkos::LayoutRight, MemorySpace, Unmanaged>(result.data()));
  fence(space, "before the host reads a sum, because the copy is asynchronous");
  return value;
}

#define MINIPIPE_INSTANTIATE(T)                                                                                 \
  template void sum<T>(const ExecutionSpace&, Vector<double>, ConstVector<T>, Vector<double>, bool);            \
  template void sum_of_squares<T>(const ExecutionSpace&, Vector<double>, ConstVector<T>, Vector<double>, bool); \
  template void sums_of_squares<T>(const ExecutionSpace&, Vector<double>, std::span<const SquareRectangle<T>>, Vector<double>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)

}  // namespace minipipe::core
