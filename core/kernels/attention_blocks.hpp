#pragma once

#include <cstdint>

#include "core/kernels/attention_tiles.hpp"

// Tiles of attention's kernels on a device. A team has one tile of queries (or of keys) and walks over those of the other
// kind, as in FlashAttention-2 (Dao, arXiv 2307.08691, section 3.2). What bounds products of tiles is how fast shared memory is
// read, so threads hold blocks of the result in registers and read four adjacent numbers at a time.
namespace minipipe::core {

// Four adjacent elements, moved by one instruction.
template <class T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Quad {
  T v[4];
};
template <class T>
KOKKOS_INLINE_FUNCTION Quad<T>& quad_at(T* address) {
  return *reinterpret_cast<Quad<T>*>(address);
}
template <class T>
KOKKOS_INLINE_FUNCTION const Quad<T>& quad_at(const T* address) {
  return *reinterpret_cast<const Quad<T>*>(address);
}

// Positions per tile, and up to which depth: one 4 x 4 block of tile x depth for each thread of a team of 128.
inline constexpr int large_tile = 32, small_tile = 16, block_team = 128;
static_assert(block_team == device_team_size);
constexpr int largest_block_depth(int tile) { return 16 * block_team / tile; }

// Blocks a thread holds over a whole walk. Teams that are imitated on a host have fewer threads. On a device four teams
// (two that compute in double) are to share a multiprocessor, which leaves a thread 128 registers: while one team waits, others
// compute.
#ifdef MINIPIPE_DEVICE_FORMS
template <class T>
using BlockPolicy = TeamPolicy;
inline constexpr int held_blocks = (block_team + TeamPolicy::most_threads - 1) / TeamPolicy::most_threads;
#else
template <class T>
using BlockPolicy = Kokkos::TeamPolicy<ExecutionSpace, Kokkos::LaunchBounds<block_team, 16 / sizeof(T)>>;
inline constexpr int held_blocks = 1;
#endif

// For computing in T.
template <class T>
BlockPolicy<T> block_policy(const ExecutionSpace& space, std::int64_t teams, int bytes) {
  BlockPolicy<T> policy(space, static_cast<int>(teams), block_team);
  policy.set_scratch_size(0, Kokkos::PerTeam(bytes));
  return policy;
}

// Rows of tiles, in quads, are of odd length: eight threads that read the same quad of eight adjacent rows meet all banks of
// shared memory once.
template <int Tile>
struct BlockSizes : AttentionSizes {
  static constexpr int square_stride = Tile + 4;  // of queries x keys
  static constexpr int score_rows = Tile / 16;    // rows of scores that a thread forms
  static constexpr int score_blocks = 4 * Tile;   // of score_rows x 4
  int quads, stride;                              // of a row of features

  BlockSizes(const AttentionShape& shape, std::int64_t columns)
      : AttentionSizes(shape, columns), quads((depth + 3) / 4), stride(4 * (quads | 1)) {
    tiles = static_cast<int>((shape.sequence + Tile - 1) / Tile);
  }

  KOKKOS_INLINE_FUNCTION int filled(int tile) const {
    const std::int64_t left = sequence - static_cast<std::int64_t>(tile) * Tile;
    return left < Tile ? static_cast<int>(left) : Tile;
  }
  KOKKOS_INLINE_FUNCTION int elements() const { return Tile * stride; }
  KOKKOS_INLINE_FUNCTION static constexpr int square() { return Tile * square_stride; }
  KOKKOS_INLINE_FUNCTION int blocks() const { return Tile / 4 * quads; }  // of 4 x 4 in tile x depth
};

// Some adjacent columns, as kernels need them: Kokkos passes arguments of up to 512 bytes with the launch, and larger ones
// through constant memory, for which each launch waits until the kernel before is done.
template <class T>
struct RowsAt {
  T* data = nullptr;
  std::int64_t stride = 0;

  RowsAt(const Columns<T>& columns) : data(columns.data), stride(columns.stride) {}
  KOKKOS_INLINE_FUNCTION T* at(std::int64_t row, std::int64_t column) const { return data + row * stride + column; }
};

// Scratch for so many values that start where a quad may. Kokkos aligns to 8 bytes.
template <class T>
int block_bytes(std::int64_t elements) {
  return scratch_bytes<T>(elements) + 16;
}
template <class T>
KOKKOS_INLINE_FUNCTION T* block_scratch(const TeamMember& team, int bytes) {
  char* memory = static_cast<char*>(team.team_scratch(0).get_shmem(bytes));
  memory += (16 - reinterpret_cast<std::uintptr_t>(memory) % 16) % 16;
#ifdef __CUDA_ARCH__
  __builtin_assume(__isShared(memory));  // nvcc does not see it: addresses of 32 bits, loads that know where
#endif
  return reinterpret_cast<T*>(memory);
}

// True if whole quads may be moved to or from rows that start at `first`, `stride` elements apart.
template <class T>
KOKKOS_INLINE_FUNCTION bool whole_quads(const T* first, std::int64_t stride, int depth) {
  return depth % 4 == 0 && stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(first) % alignof(Quad<T>) == 0;
}

// tile[i][d] = factor source[i][d], zero where i >= rows or d >= depth. Adjacent threads read adjacent quads, and each reads
// several before it waits for the first. Without a barrier.
template <int Tile, class T>
KOKKOS_INLINE_FUNCTION void load_block(const TeamMember& team, Compute<T>* tile, const BlockSizes<Tile>& z, const T* source,
                                       std::int64_t stride, int rows, Compute<T> factor) {
  constexpr int batch = 4;
  const bool whole = whole_quads(source, stride, z.depth);
  const int row_step = team.team_size() / z.quads, quad_step = team.team_size() % z.quads;
  int row = team.team_rank() / z.quads, quad = team.team_rank() % z.quads;
  while (row < Tile) {
    Quad<T> stored[batch];
    int places[batch];
    for (int n = 0; n < batch; ++n) {
      places[n] = row < Tile ? row * z.stride + 4 * quad : -1;
      const T* from = source + row * stride + 4 * quad;
      if (row < rows && whole) {
        stored[n] = quad_at(from);
      } else {
        for (int l = 0; l < 4; ++l) {
          stored[n].v[l] = row < rows && 4 * quad + l < z.depth ? from[l] : T(0);
        }
      }
      row += row_step;
      quad += quad_step;
      if (quad >= z.quads) {
        quad -= z.quads;
        ++row;
      }
    }
    for (int n = 0; n < batch; ++n) {
      if (places[n] < 0) continue;
      Quad<Compute<T>> values;
      for (int l = 0; l < 4; ++l) {
        values.v[l] = factor * static_cast<Compute<T>>(stored[n].v[l]);
      }
      quad_at(tile + places[n]) = values;
    }
  }
}

// Writes a thread's block of tile x depth, each row times its factor: rows from `row` on, below `rows`, and the features of a
// quad.
template <int Tile, class T>
KOKKOS_INLINE_FUNCTION void store_block(T* target, std::int64_t stride, const Compute<T> (&block)[4][4],
                                        const BlockSizes<Tile>& z, int row, int rows, int quad,
                                        const Compute<T> (&factors)[4]) {
  const bool whole = whole_quads(target, stride, z.depth);
  for (int i = 0; i < 4; ++i) {
    if (row + i >= rows) continue;
    T* to = target + (row + i) * stride + 4 * quad;
    if (whole) {
      Quad<T> values;
      for (int l = 0; l < 4; ++l) {
        values.v[l] = static_cast<T>(factors[i] * block[i][l]);
      }
      quad_at(to) = values;
    } else {
      for (int l = 0; l < 4 && 4 * quad + l < z.depth; ++l) {
        to[l] = static_cast<T>(factors[i] * block[i][l]);
      }
    }
  }
}

// Loops over tiles are unrolled no further than below: nvcc would by 4, and then registers spill.

// sums[r][l] = a[16 r] . b[l], rows of features.
template <int Tile, class T>
KOKKOS_INLINE_FUNCTION void dot_block(T (&sums)[Tile / 16][4], const T* a, const T* b, const BlockSizes<Tile>& z) {
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (int q = 0; q < z.quads; ++q) {
    Quad<T> rows[Tile / 16];
    for (int r = 0; r < Tile / 16; ++r) {
      rows[r] = quad_at(a + r * 16 * z.stride + 4 * q);
    }
    for (int l = 0; l < 4; ++l) {
      const Quad<T> other = quad_at(b + l * z.stride + 4 * q);
      for (int r = 0; r < Tile / 16; ++r) {
        for (int p = 0; p < 4; ++p) {
          sums[r][l] = multiply_add(rows[r].v[p], other.v[p], sums[r][l]);
        }
      }
    }
  }
}

// block += a b for four rows of a (queries x keys) and a quad of b's features, over the first `quads` quads of keys.
template <int Tile, class T>
KOKKOS_INLINE_FUNCTION void multiply_block(T (&block)[4][4], const T* a, const T* b, const BlockSizes<Tile>& z, int quads) {
#ifdef __CUDA_ARCH__
#pragma unroll 1
#endif
  for (int q = 0; q < quads; ++q) {
    Quad<T> rows[4];
    for (int i = 0; i < 4; ++i) {
      rows[i] = quad_at(a + i * z.square_stride + 4 * q);
    }
    for (int p = 0; p < 4; ++p) {
      const Quad<T> other = quad_at(b + (4 * q + p) * z.stride);
      for (int i = 0; i < 4; ++i) {
        for (int l = 0; l < 4; ++l) {
          block[i][l] = multiply_add(rows[i].v[p], other.v[l], block[i][l]);
        }
      }
    }
  }
}

// block += a^T b for a quad of a's columns (keys) and one of b's features, over queries from `first` to `last`.
template <int Tile, class T>
KOKKOS_INLINE_FUNCTION void multiply_transposed_block(T (&block)[4][4], const T* a, const T* b, const BlockSizes<Tile>& z,
                                                      int first, int last) {
#ifdef __CUDA_ARCH__
#pragma unroll 2
#endif
  for (int p = first; p < last; ++p) {
    const Quad<T> column = quad_at(a + p * z.square_stride), other = quad_at(b + p * z.stride);
    for (int i = 0; i < 4; ++i) {
      for (int l = 0; l < 4; ++l) {
        block[i][l] = multiply_add(column.v[i], other.v[l], block[i][l]);
      }
    }
  }
}

// A tile of queries that meets one of keys.
struct TilePair {
  std::int64_t head = 0, first_query = 0, first_key = 0;  // head: over the batch, b H + h
  int queries = 0, keys = 0;
  bool diagonal = false;

  KOKKOS_INLINE_FUNCTION bool sees(int query, int key) const { return key < keys && (!diagonal || key <= query); }
};

// The factors of four adjacent keys' probabilities; the first key is a multiple of 4.
template <class T>
KOKKOS_INLINE_FUNCTION void mask_factors(T (&factors)[4], const DropoutMask<T>& mask, const AttentionSizes& z,
                                         const TilePair& at, int query, int key) {
  const std::int64_t row = at.head * z.sequence + at.first_query + query;
  mask.factors(factors, static_cast<std::uint64_t>(row * z.mask_groups + (at.first_key + key) / 4));
}

// Calls run(std::integral_constant<int, Tile>) with the largest tile for which bytes(sizes) fit in shared memory; false if none
// does.
template <class Run, class Elements>
bool with_block_tile(int depth, int value_bytes, const Elements& elements, const Run& run) {
  const auto fits = [&](auto tile) {
    return depth <= largest_block_depth(tile) && elements(tile) * value_bytes + 16 <= 46 << 10;
  };
  const std::integral_constant<int, large_tile> large;
  const std::integral_constant<int, small_tile> small;
  if (fits(large)) {
    run(large);
  } else if (fits(small)) {
    run(small);
  } else {
    return false;
  }
  return true;
}

}  // namespace minipipe::core
