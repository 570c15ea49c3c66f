#pragma once

#include "core/kernels/attention.hpp"
#include "core/kernels/loops.hpp"
#include "core/kernels/philox.hpp"
#include "core/kernels/shape.hpp"
#include "core/kernels/tile.hpp"

// What the forward and the backward of attention share.
namespace minipipe::core {

// Queries and keys per tile. On a device all tiles must fit in the shared memory of one block.
inline constexpr int attention_tile = on_host ? 64 : 16;

struct AttentionSizes {
  std::int64_t sequence = 0, heads = 0, groups = 0, width = 0, mask_groups = 0;
  int depth = 0, padded_depth = 0, tiles = 0, share = 1;  // share: query heads of a key-value head

  AttentionSizes(const AttentionShape& shape, std::int64_t columns)
      : sequence(shape.sequence),
        heads(shape.heads),
        groups(shape.groups()),
        width(columns),
        mask_groups((shape.sequence + 3) / 4),
        depth(static_cast<int>(columns / shape.heads)),
        padded_depth(round_up(depth, tile_columns)),
        tiles(static_cast<int>((shape.sequence + attention_tile - 1) / attention_tile)),
        share(static_cast<int>(shape.heads / shape.groups())) {}

  // Positions of a tile that exist.
  KOKKOS_INLINE_FUNCTION int filled(int tile) const {
    const std::int64_t left = sequence - static_cast<std::int64_t>(tile) * attention_tile;
    return left < attention_tile ? static_cast<int>(left) : attention_tile;
  }
};

inline void require_attention(bool fits, const AttentionShape& shape, std::int64_t columns, const Dropout& dropout,
                              const char* kernel) {
  require_shape(fits && shape.heads > 0 && columns % shape.heads == 0 && shape.heads % shape.groups() == 0 &&
                    dropout.probability >= 0 && dropout.probability < 1,
                kernel);
}

template <class T>
bool fits_attention(const Qkv<T>& qkv, const AttentionShape& shape, std::int64_t columns) {
  if (shape.heads <= 0) return false;
  const std::int64_t rows = shape.batch * shape.sequence, kv_columns = columns / shape.heads * shape.groups();
  return qkv.q.rows == rows && qkv.k.rows == rows && qkv.v.rows == rows && qkv.q.columns == columns &&
         qkv.k.columns == kv_columns && qkv.v.columns == kv_columns;
}

// Multiplies a row of `count` probabilities, `stride` apart, by their factors; keys start at first_key, a multiple of 4.
template <class T>
KOKKOS_INLINE_FUNCTION void mask_row(const DropoutMask<T>& mask, const AttentionSizes& sizes, std::int64_t head,
                                     std::int64_t query, std::int64_t first_key, T* values, int count, int stride = 1) {
  const std::int64_t group = (head * sizes.sequence + query) * sizes.mask_groups + first_key / 4;
  for (int j = 0; j < count; j += 4) {
    T factors[4];
    mask.factors(factors, static_cast<std::uint64_t>(group + j / 4));
    for (int l = 0; l < 4 && j + l < count; ++l) {
      values[(j + l) * stride] *= factors[l];
    }
  }
}

// The level of scratch: on a device that of the memory a block shares, or, for heads whose tiles are larger than that, global
// memory. Kokkos needs some of a block's 48 KiB for itself.
inline int attention_level(std::int64_t bytes) { return on_host || bytes <= 46 << 10 ? 0 : 1; }

inline TeamPolicy attention_policy(const ExecutionSpace& space, std::int64_t teams, std::int64_t bytes) {
  TeamPolicy policy(space, static_cast<int>(teams), on_host ? 1 : device_team_size);
  policy.set_scratch_size(attention_level(bytes), Kokkos::PerTeam(static_cast<int>(bytes)));
  return policy;
}

}  // namespace minipipe::core
