#pragma once

#include "core/kernels/attention_blocks.hpp"

// The forward of attention on a device: one team per query head and tile of queries, FlashAttention-2 (Dao, arXiv 2307.08691,
// section 3.1): outputs stay in registers and are divided by the sums of exponentials once, at the end.
namespace minipipe::core {

template <int Tile, class T>
struct BlockForward {
  using C = Compute<T>;
  static constexpr int lanes = 4;  // threads that share a row of scores
  BlockSizes<Tile> z;
  RowsAt<T> out;
  C* logsumexp;
  RowsAt<const T> q, k, v;
  DropoutMask<C> mask;
  bool masked;
  C scale;

  std::int64_t elements() const { return 3 * z.elements() + z.square() + (lanes + 1) * Tile; }
};

// Scores of a pair of tiles; lowest_value where a query does not see a key.
template <int Tile, class T>
KOKKOS_INLINE_FUNCTION void score_blocks(const TeamMember& team, const BlockSizes<Tile>& z, const TilePair& at, const T* q,
                                         const T* k, T* s) {
  constexpr int rows = BlockSizes<Tile>::score_rows;
  for (int e = team.team_rank(); e < z.score_blocks; e += team.team_size()) {
    const int i = e % 16, j = e / 16 * 4;
    T scores[rows][4] = {};
    if (at.sees(i + Tile - 16, j)) dot_block<Tile>(scores, q + i * z.stride, k + j * z.stride, z);
    for (int r = 0; r < rows; ++r) {
      Quad<T> seen;
      for (int l = 0; l < 4; ++l) {
        seen.v[l] = at.sees(i + 16 * r, j + l) ? scores[r][l] : lowest_value<T>;
      }
      quad_at(s + (i + 16 * r) * z.square_stride + j) = seen;
    }
  }
}

// A lane's part of a row of scores, every fourth quad: its largest, and not less than `largest`.
template <int Tile, class T>
KOKKOS_INLINE_FUNCTION T largest_of_part(const T* s, int lane, T largest) {
  for (int j = 4 * lane; j < Tile; j += 16) {
    const Quad<T> scores = quad_at(s + j);
    for (int l = 0; l < 4; ++l) {
      largest = largest < scores.v[l] ? scores.v[l] : largest;
    }
  }
  return largest;
}

// Scores become exp(score - largest), times their dropout factors. Returns the sum before dropout.
template <int Tile, class T>
KOKKOS_INLINE_FUNCTION Compute<T> exponentials_of_part(const BlockForward<Tile, T>& a, const TilePair& at, Compute<T>* s,
                                                       int row, int lane, Compute<T> largest) {
  using C = Compute<T>;
  C sum = 0;
  for (int j = 4 * lane; j < Tile; j += 16) {
    Quad<C> values = quad_at(s + j);
    C factors[4] = {1, 1, 1, 1};
    if (a.masked) mask_factors(factors, a.mask, a.z, at, row, j);
    for (int l = 0; l < 4; ++l) {
      const C value = at.sees(row, j + l) ? exponential(values.v[l] - largest) : C(0);
      sum += value;
      values.v[l] = value * factors[l];
    }
    quad_at(s + j) = values;
  }
  return sum;
}

// One value for each lane of a row, joined in a fixed order.
template <class T>
KOKKOS_INLINE_FUNCTION T sum_of_lanes(const T* part) {
  return (part[0] + part[1]) + (part[2] + part[3]);
}

template <int Tile, class T>
void attention_forward_blocks(const ExecutionSpace& space, const BlockForward<Tile, T>& a, std::int64_t batch) {
  using C = Compute<T>;
  const int bytes = block_bytes<C>(a.elements());
  const std::int64_t heads = batch * a.z.heads;  // over the batch
  Kokkos::parallel_for(
      "minipipe::attention::forward", block_policy<C>(space, heads * a.z.tiles, bytes), KOKKOS_LAMBDA(const TeamMember& team) {
        constexpr int lanes = BlockForward<Tile, T>::lanes;
        const auto& z = a.z;
        C* const q = block_scratch<C>(team, bytes);
        C *const k = q + z.elements(), *const v = k + z.elements(), *const s = v + z.elements();
        C *const part = s + z.square(), *const shrink = part + lanes * Tile;
        // The last tiles of queries see the most keys: they start first.
        const int tile = z.tiles - 1 - static_cast<int>(team.league_rank() / heads);
        TilePair at;
        at.head = team.league_rank() % heads;
        at.first_query = static_cast<std::int64_t>(tile) * Tile;
        at.queries = z.filled(tile);
        const std::int64_t first_row = at.head / z.heads * z.sequence, row = first_row + at.first_query;
        const std::int64_t column = at.head % z.heads * z.depth, key_column = at.head % z.heads / z.share * z.depth;
        load_block<Tile>(team, q, z, a.q.at(row, column), a.q.stride, at.queries, a.scale);
        C o[held_blocks][4][4] = {};
        C largest[held_blocks], total[held_blocks];  // of a row; of what this lane saw of it
        for (int h = 0; h < held_blocks; ++h) {
          largest[h] = lowest_value<C>;
          total[h] = 0;
        }
        for (int key_tile = 0; key_tile <= tile; ++key_tile) {
          at.first_key = static_cast<std::int64_t>(key_tile) * Tile;
          at.keys = z.filled(key_tile);
          at.diagonal = key_tile == tile;
          const std::int64_t key_row = first_row + at.first_key;
          load_block<Tile>(team, k, z, a.k.at(key_row, key_column), a.k.stride, at.keys, C(1));
          load_block<Tile>(team, v, z, a.v.at(key_row, key_column), a.v.stride, at.keys, C(1));
          team.team_barrier();
          score_blocks<Tile>(team, z, at, q, k, s);
          team.team_barrier();
          for (int h = 0; h < held_blocks; ++h) {
            const int e = team.team_rank() + h * team.team_size();
            if (e >= lanes * Tile) continue;
            part[e] = largest_of_part<Tile>(s + e / lanes * z.square_stride, e % lanes, largest[h]);
          }
          team.team_barrier();
          for (int h = 0; h < held_blocks; ++h) {
            const int e = team.team_rank() + h * team.team_size();
            if (e >= lanes * Tile) continue;
            const int i = e / lanes, lane = e % lanes;
            C now = part[i * lanes];
            for (int l = 1; l < lanes; ++l) {
              now = now < part[i * lanes + l] ? part[i * lanes + l] : now;
            }
            const C factor = exponential(largest[h] - now);
            largest[h] = now;
            total[h] = total[h] * factor + exponentials_of_part(a, at, s + i * z.square_stride, i, lane, now);
            if (lane == 0) shrink[i] = factor;
          }
          team.team_barrier();
          for (int h = 0; h < held_blocks; ++h) {
            const int block = team.team_rank() + h * team.team_size();
            if (block >= z.blocks()) continue;
            const int d = block % z.quads * 4, i = block / z.quads * 4;
            for (int r = 0; r < 4; ++r) {
              for (int l = 0; l < 4; ++l) {
                o[h][r][l] *= shrink[i + r];
              }
            }
            multiply_block<Tile>(o[h], s + i * z.square_stride, v + d, z, at.diagonal ? i / 4 + 1 : (at.keys + 3) / 4);
          }
          team.team_barrier();
        }
        for (int h = 0; h < held_blocks; ++h) {
          const int e = team.team_rank() + h * team.team_size();
          if (e < lanes * Tile) part[e] = total[h];
        }
        team.team_barrier();
        T* const to = a.out.at(row, column);
        for (int h = 0; h < held_blocks; ++h) {
          const int block = team.team_rank() + h * team.team_size();
          if (block < z.blocks()) {
            const int i = block / z.quads * 4;
            C inverse[4];
            for (int r = 0; r < 4; ++r) {
              inverse[r] = 1 / sum_of_lanes(part + (i + r) * lanes);
            }
            store_block<Tile>(to, a.out.stride, o[h], z, i, at.queries, block % z.quads, inverse);
          }
          const int i = block / lanes;  // as a row's lane
          if (i < at.queries && block % lanes == 0) {
            a.logsumexp[at.head * z.sequence + at.first_query + i] = largest[h] + logarithm(sum_of_lanes(part + block));
          }
        }
      });
}

// Arguments as those of attention_forward, checked. False, with nothing done, for heads too large.
template <class T>
bool attention_forward_device(const ExecutionSpace& space, const Matrix<T>& out, const Vector<Compute<T>>& logsumexp,
                              const Qkv<const T>& qkv, const AttentionShape& shape, const Dropout& dropout) {
  using C = Compute<T>;
  const std::int64_t columns = extent(out, 1);
  const int depth = static_cast<int>(columns / shape.heads);
  const auto arrays = [&](auto tile) {
    return BlockForward<tile.value, T>{BlockSizes<tile.value>(shape, columns),
                                       columns_of(out),
                                       logsumexp.data(),
                                       qkv.q,
                                       qkv.k,
                                       qkv.v,
                                       DropoutMask<C>(dropout),
                                       dropout.probability > 0,
                                       static_cast<C>(1 / std::sqrt(static_cast<double>(depth)))};
  };
  return with_block_tile(
      depth, sizeof(C), [&](auto tile) { return arrays(tile).elements(); },
      [&](auto tile) { attention_forward_blocks(space, arrays(tile), shape.batch); });
}

}  // namespace minipipe::core
