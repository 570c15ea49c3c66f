#include "core/kernels/embedding.hpp"

#include "core/kernels/embedding_backward_device.hpp"
#include "core/kernels/pack_loops.hpp"
#include "core/kernels/shape.hpp"

namespace minipipe::core {

namespace {

template <class T>
struct SumOfRows {
  T* out;
  const T *token, *position;

  template <class Lanes>
  KOKKOS_INLINE_FUNCTION void operator()(const Lanes& lanes, std::int64_t c) const {
    lanes.store(out + c, lanes.load(token + c) + lanes.load(position + c));
  }
};

// Adds to `target` rows of `source`, `count` of them, `stride` elements apart, in their order.
template <class T, class Member>
KOKKOS_INLINE_FUNCTION void add_position_rows(const Member& member, Compute<T>* target, const T* source, std::int64_t count,
                                              std::int64_t stride, std::int64_t columns) {
  if constexpr (on_host) {
    for (std::int64_t b = 0; b < count; ++b) {
      const T* row = source + b * stride;
      row_for(member, columns, [=](const std::int64_t c) { target[c] += row[c]; });
    }
  } else {
    row_for(member, columns, [=](const std::int64_t c) {
      Compute<T> sum = target[c];
      for (std::int64_t b = 0; b < count; ++b) sum += source[b * stride + c];
      target[c] = sum;
    });
  }
}

}  // namespace

template <class T>
void embedding_forward(const ExecutionSpace& space, Matrix<T> out, ConstMatrix<std::int32_t> tokens, ConstMatrix<T> token_table,
                       ConstMatrix<T> position_table) {
  const std::int64_t sequence = extent(tokens, 1), columns = extent(out, 1);
  const bool positions = position_table.size() > 0;
  require_shape(out.extent(0) == tokens.size() && extent(token_table, 1) == columns &&
                    (!positions || (extent(position_table, 1) == columns && extent(position_table, 0) >= sequence)),
                "embedding_forward");
  const auto batch = static_cast<std::uint32_t>(extent(tokens, 0));
  // Place by place through the batch, so that a position's row is read from far away once.
  for_rows(
      "minipipe::embedding::forward", space, extent(out, 0), KOKKOS_LAMBDA(const RowMember& member, const std::int64_t unit) {
        const std::int64_t place = static_cast<std::uint32_t>(unit) / batch;
        const std::int64_t row = static_cast<std::uint32_t>(unit) % batch * sequence + place;
        const T* token = row_pointer(token_table, tokens.data()[row]);
        T* result = row_pointer(out, row);
        if (positions) {
          row_packs<Compute<T>>(member, columns, SumOfRows<T>{result, token, row_pointer(position_table, place)});
        } else {
          row_for(member, columns, [=](const std::int64_t c) { result[c] = static_cast<Compute<T>>(token[c]); });
        }
      });
}

template <class T>
void embedding_backward(const ExecutionSpace& space, Matrix<Compute<T>> token_gradient, Matrix<Compute<T>> position_gradient,
                        ConstMatrix<T> output_gradient, ConstMatrix<std::int32_t> tokens) {
  const std::int64_t batch = extent(tokens, 0), sequence = extent(tokens, 1);
  const std::int64_t rows = extent(output_gradient, 0), columns = extent(output_gradient, 1);
  const bool positions = position_gradient.size() > 0;
  require_shape(rows == batch * sequence && extent(token_gradient, 1) == columns &&
                    (!positions || (extent(position_gradient, 1) == columns && extent(position_gradient, 0) >= sequence)),
                "embedding_backward");
  if constexpr (on_host) {
    for_column_groups("minipipe::embedding::backward_tokens", space, columns,
                      [=](const std::int64_t first, const std::int64_t width) {
                        for (std::int64_t row = 0; row < rows; ++row) {
                          const T* source = row_pointer(output_gradient, row) + first;
                          Compute<T>* target = row_pointer(token_gradient, tokens.data()[row]) + first;
#pragma GCC ivdep
                          for (std::int64_t j = 0; j < width; ++j) {
                            target[j] += source[j];
                          }
                        }
                      });
  } else {
    add_token_rows_on_device<T>(space, token_gradient, output_gradient, tokens);
  }
  if (!positions) return;
  for_rows(
      "minipipe::embedding::backward_positions", space, sequence, KOKKOS_LAMBDA(const RowMember& member, const std::int64_t t) {
        add_position_rows<T>(member, row_pointer(position_gradient, t), row_pointer(output_gradient, t), batch,
                             sequence * columns, columns);
      });
}

#define MINIPIPE_INSTANTIATE(T)                                                                                      \
  template void embedding_forward<T>(const ExecutionSpace&, Matrix<T>, ConstMatrix<std::int32_t>, ConstMatrix<T>,    \
                                     ConstMatrix<T>);                                                                \
  template void embedding_backward<T>(const ExecutionSpace&, Matrix<Compute<T>>, Matrix<Compute<T>>, ConstMatrix<T>, \
                                      ConstMatrix<std::int32_t>);
MINIPIPE_INSTANTIATE(float)
MINIPIPE_INSTANTIATE(double)
MINIPIPE_INSTANTIATE(bf16)

}  // namespace minipipe::core
