#pragma once

#include <cstdint>
#include <type_traits>

#include "core/kernels/lanes.hpp"

// Products of small tiles on the host, with blocks of sums in registers, and the packing that they need. Tiles are row-major
// with row strides known at compile time.
namespace minipipe::core {

// sums[r][v] += sum over k < count of a[r RowStride + k StepStride] b[k Stride + v lane_count ..].
template <int RowStride, int StepStride, int Stride, int Rows, int Vectors>
[[gnu::always_inline]] inline void add_products(Lanes (&sums)[Rows][Vectors], const float* a, const float* b, int count) {
  for (int k = 0; k < count; ++k) {
    Lanes right[Vectors];
    MINIPIPE_UNROLL(32)
    for (int v = 0; v < Vectors; ++v) {
      right[v] = load_lanes(b + v * lane_count);
      keep_in_register(right[v]);
    }
    MINIPIPE_UNROLL(32)
    for (int r = 0; r < Rows; ++r) {
      const Lanes left = all_lanes(a[r * RowStride]);
      MINIPIPE_UNROLL(32)
      for (int v = 0; v < Vectors; ++v) {
        sums[r][v] = multiply_add(left, right[v], sums[r][v]);
      }
    }
    a += StepStride;
    b += Stride;
  }
}

// How a tile of `Stride` columns is cut into blocks of sums: `vectors` registers wide, `rows` (a power of 2) high.
template <int Stride>
struct LaneBlock {
  static constexpr int total = Stride / lane_count;
  static constexpr int sums = lane_registers == 32 ? 24 : 12;
  static constexpr int widest() {
    int result = 1;
    for (int v = 2; v <= sums / 4; ++v) {
      if (total % v == 0) result = v;
    }
    return result;
  }
  static constexpr int vectors = widest();
  static constexpr int highest() {
    int result = 1;
    while (2 * result * vectors <= sums && 2 * result <= lane_count) result *= 2;
    return result;
  }
  static constexpr int rows = highest();
};

// c (rows x Stride) (+)= sums of a[i RowStride + k StepStride] b[k], b of row stride Stride, over k from
// first(i) to last(i) for the block of rows from i on. `rows` is rounded up to whole blocks. factor(i) is what row i of c is
// multiplied with beforehand; without `accumulate` c is not read.
template <int Stride, int RowStride, int StepStride, class First, class Last, class Factor>
[[gnu::always_inline]] inline void multiply_tile(float* c, int rows, const float* a, const float* b, bool accumulate,
                                                 const First& first, const Last& last, const Factor& factor) {
  using Block = LaneBlock<Stride>;
  for (int column = 0; column < Stride; column += Block::vectors * lane_count) {
    for (int i = 0; i < rows; i += Block::rows) {
      float* target = c + i * Stride + column;
      Lanes sums[Block::rows][Block::vectors] = {};
      if (accumulate) {
        MINIPIPE_UNROLL(32)
        for (int r = 0; r < Block::rows; ++r) {
          MINIPIPE_UNROLL(32)
          for (int v = 0; v < Block::vectors; ++v) {
            sums[r][v] = factor(i + r) * load_lanes(target + r * Stride + v * lane_count);
          }
        }
      }
      const int begin = first(i);
      add_products<RowStride, StepStride, Stride>(sums, a + i * RowStride + begin * StepStride, b + begin * Stride + column,
                                                  last(i) - begin);
      MINIPIPE_UNROLL(32)
      for (int r = 0; r < Block::rows; ++r) {
        MINIPIPE_UNROLL(32)
        for (int v = 0; v < Block::vectors; ++v) {
          store_lanes(target + r * Stride + v * lane_count, sums[r][v]);
        }
      }
    }
  }
}

// Rows are read far apart in memory, where hardware does not foresee them. May point behind the array.
inline constexpr int prefetch_rows = 8;
template <class T>
inline void prefetch_row(const T* row, int columns) {
  for (int d = 0; d < columns; d += 64 / static_cast<int>(sizeof(T))) {
    __builtin_prefetch(row + d);
  }
}

// tile[i][d] = factor source[i][d], zero where i >= rows or d >= depth.
template <int Stride, class T>
void pack_rows(float* tile, int padded_rows, const T* source, std::int64_t stride, int rows, int depth, float factor) {
  const Lanes factors = all_lanes(factor);
  for (int i = 0; i < rows; ++i) {
    prefetch_row(source + (i + prefetch_rows) * stride, depth);
    if (depth == Stride) {
      MINIPIPE_UNROLL(32)
      for (int d = 0; d < Stride; d += lane_count) {
        store_lanes(tile + i * Stride + d, factors * load_lanes(source + i * stride + d));
      }
    } else {
      for (int d = 0; d < Stride; d += lane_count) {
        store_lanes(tile + i * Stride + d, factors * load_lanes(source + i * stride + d, depth - d));
      }
    }
  }
  for (int i = rows * Stride; i < padded_rows * Stride; ++i) {
    tile[i] = 0;
  }
}

// tile[d][i] = factor source[i][d] for d < depth and i < Width, zero where i >= rows.
template <int Width, class T>
void pack_transposed(float* tile, const T* source, std::int64_t stride, int rows, int depth, float factor) {
  const Lanes factors = all_lanes(factor);
  for (int i = 0; i < rows; ++i) {
    prefetch_row(source + i * stride, depth);
  }
  for (int i = 0; i < Width; i += lane_count) {
    for (int d = 0; d < depth; d += lane_count) {
      Lanes block[lane_count];
      if (i + lane_count <= rows && d + lane_count <= depth) {
        MINIPIPE_UNROLL(32)
        for (int r = 0; r < lane_count; ++r) {
          block[r] = factors * load_lanes(source + (i + r) * stride + d);
        }
      } else {
        for (int r = 0; r < lane_count; ++r) {
          block[r] = i + r < rows ? factors * load_lanes(source + (i + r) * stride + d, depth - d) : Lanes{};
        }
      }
      transpose(block);
      if (d + lane_count <= depth) {
        MINIPIPE_UNROLL(32)
        for (int r = 0; r < lane_count; ++r) {
          store_lanes(tile + (d + r) * Width + i, block[r]);
        }
      } else {
        for (int r = 0; d + r < depth; ++r) {
          store_lanes(tile + (d + r) * Width + i, block[r]);
        }
      }
    }
  }
}

// body(std::integral_constant<int, stride>) with the smallest row stride there is code for that holds `columns`.
inline constexpr int largest_lane_stride = 256;
template <class Body>
void with_lane_stride(int columns, const Body& body) {
  if (columns <= 16) return body(std::integral_constant<int, 16>());
  if (columns <= 32) return body(std::integral_constant<int, 32>());
  if (columns <= 48) return body(std::integral_constant<int, 48>());
  if (columns <= 64) return body(std::integral_constant<int, 64>());
  if (columns <= 80) return body(std::integral_constant<int, 80>());
  if (columns <= 96) return body(std::integral_constant<int, 96>());
  if (columns <= 128) return body(std::integral_constant<int, 128>());
  if (columns <= 192) return body(std::integral_constant<int, 192>());
  return body(std::integral_constant<int, 256>());
}

}  // namespace minipipe::core
