#pragma once

#include "core/kernels/math.hpp"
#include "core/types/types.hpp"

// Products of small tiles held in team scratch, the inner loops of attention. Tiles are row-major and padded with zeros: rows
// to a multiple of tile_rows, columns to a multiple of tile_columns, so that the host kernel has no remainders.
namespace minipipe::core {

inline constexpr int tile_rows = on_host ? 4 : 1;
#if defined(__AVX512F__)
inline constexpr int tile_columns = on_host ? 32 : 1;
#else
inline constexpr int tile_columns = on_host ? 16 : 1;
#endif

KOKKOS_INLINE_FUNCTION constexpr int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// tile_rows x tile_columns elements of c, held in registers over the sum.
template <bool TransposeA, bool Accumulate, class T>
KOKKOS_INLINE_FUNCTION void tile_block(T* c, int ldc, const T* a, int lda, const T* b, int ldb, int first, int last) {
  T sums[tile_rows][tile_columns];
  for (int i = 0; i < tile_rows; ++i) {
    for (int j = 0; j < tile_columns; ++j) {
      sums[i][j] = Accumulate ? c[i * ldc + j] : T(0);
    }
  }
  for (int p = first; p < last; ++p) {
    for (int i = 0; i < tile_rows; ++i) {
      const T factor = TransposeA ? a[p * lda + i] : a[i * lda + p];
      for (int j = 0; j < tile_columns; ++j) {
        sums[i][j] = multiply_add(factor, b[p * ldb + j], sums[i][j]);
      }
    }
  }
  for (int i = 0; i < tile_rows; ++i) {
    for (int j = 0; j < tile_columns; ++j) {
      c[i * ldc + j] = sums[i][j];
    }
  }
}

// c (+)= op(a) b for c of rows x columns, both padded counts. Row block i sums over p from first(i) to last(i) and computes the
// columns below width(i); causal tiles leave out what is masked.
template <bool TransposeA, bool Accumulate, class T, class First, class Last, class Width>
KOKKOS_INLINE_FUNCTION void tile_multiply(const TeamMember& team, int rows, T* c, int ldc, const T* a, int lda, const T* b,
                                          int ldb, const First& first, const Last& last, const Width& width) {
  if constexpr (on_host) {
    for (int i = 0; i < rows; i += tile_rows) {
      const int begin = first(i), end = last(i), columns = width(i);
      for (int j = 0; j < columns; j += tile_columns) {
        tile_block<TransposeA, Accumulate>(c + i * ldc + j, ldc, TransposeA ? a + i : a + i * lda, lda, b + j, ldb, begin, end);
      }
    }
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, rows * ldc), [&](const int e) {
      const int i = e / ldc, j = e % ldc;
      if (j < width(i)) {
        tile_block<TransposeA, Accumulate>(c + e, ldc, TransposeA ? a + i : a + i * lda, lda, b + j, ldb, first(i), last(i));
      }
    });
    team.team_barrier();
  }
}

// tile[i][d] = factor source[i][d], zero where i >= rows or d >= depth.
template <class T>
KOKKOS_INLINE_FUNCTION void load_tile(const TeamMember& team, Compute<T>* tile, int padded_rows, int padded_depth,
                                      const T* source, std::int64_t stride, int rows, int depth, Compute<T> factor) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, padded_rows), [&](const int i) {
    const int filled = i < rows ? depth : 0;
    for (int d = 0; d < filled; ++d) {
      tile[i * padded_depth + d] = factor * source[i * stride + d];
    }
    for (int d = filled; d < padded_depth; ++d) {
      tile[i * padded_depth + d] = 0;
    }
  });
  team.team_barrier();
}

// tile[d][j] = source[j][d], zero where j >= rows; tile is depth x width.
template <class T>
KOKKOS_INLINE_FUNCTION void load_transposed(const TeamMember& team, Compute<T>* tile, int width, const T* source,
                                            std::int64_t stride, int rows, int depth) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, width), [&](const int j) {
    for (int d = 0; d < depth; ++d) {
      tile[d * width + j] = j < rows ? static_cast<Compute<T>>(source[j * stride + d]) : Compute<T>(0);
    }
  });
  team.team_barrier();
}

}  // namespace minipipe::core
