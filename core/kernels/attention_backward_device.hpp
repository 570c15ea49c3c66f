#pragma once

#include "core/kernels/attention_blocks.hpp"

// The backward of attention on a device in three kernels, each sum with one owner: FlashAttention-2 (Dao, arXiv 2307.08691,
// section 3.2) walks once and adds the gradients of queries with atomics; here a second walk forms them in a fixed order, for
// 7/5 of the products.
namespace minipipe::core {

template <int Tile, class T>
struct BlockBackward {
  using C = Compute<T>;
  BlockSizes<Tile> z;
  RowsAt<T> dq, dk, dv;
  RowsAt<const T> q, k, v, dout;
  const C* logsumexp;
  RowsAt<C> dots;  // that of a query and head stands where the first feature of the query's gradient will
  DropoutMask<C> mask;
  bool masked;
  C scale;

  std::int64_t elements(int squares) const { return 4 * z.elements() + squares * z.square(); }
};

// dots = rows of output_gradient . rows of out, per head: eight lanes a row.
template <class T>
void attention_row_dots(const ExecutionSpace& space, const Columns<Compute<T>>& dots, const ConstMatrix<T>& output_gradient,
                        const ConstMatrix<T>& out, const AttentionSizes& z) {
  using C = Compute<T>;
  constexpr int lanes = 8, rows = device_team_size / lanes;
  const std::int64_t count = extent(out, 0) * z.heads;  // rows of one head, adjacent in memory
  const int bytes = scratch_bytes<C>(lanes * rows);
  Kokkos::parallel_for(
      "minipipe::attention::row_dots", block_policy<C>(space, (count + rows - 1) / rows, bytes),
      KOKKOS_LAMBDA(const TeamMember& team) {
        C* partial = static_cast<C*>(team.team_scratch(0).get_shmem(bytes));
        const std::int64_t first = static_cast<std::int64_t>(team.league_rank()) * rows;
        for (int e = team.team_rank(); e < lanes * rows; e += team.team_size()) {
          const std::int64_t row = first + e / lanes;
          C sum = 0;
          for (int d = e % lanes; d < z.depth && row < count; d += lanes) {
            const std::int64_t at = row * z.depth + d;
            sum = multiply_add(static_cast<C>(output_gradient.data()[at]), static_cast<C>(out.data()[at]), sum);
          }
          partial[e] = sum;
        }
        team.team_barrier();
        for (int i = team.team_rank(); i < rows && first + i < count; i += team.team_size()) {
          C sum = 0;
          for (int l = 0; l < lanes; ++l) {
            sum += partial[i * lanes + l];
          }
          dots.data[(first + i) / z.heads * dots.stride + (first + i) % z.heads * z.depth] = sum;
        }
      });
}

// Gradients of the scores of a pair of tiles, and (if KeepP) probabilities as they met the values, after dropout. Zero where a
// query does not see a key.
template <bool KeepP, int Tile, class T>
KOKKOS_INLINE_FUNCTION void score_gradients(const TeamMember& team, const BlockBackward<Tile, T>& a, const TilePair& at,
                                            const Compute<T>* q, const Compute<T>* dout, const Compute<T>* k,
                                            const Compute<T>* v, Compute<T>* ds, Compute<T>* p) {
  using C = Compute<T>;
  constexpr int rows = BlockSizes<Tile>::score_rows;
  const auto& z = a.z;
  for (int e = team.team_rank(); e < z.score_blocks; e += team.team_size()) {
    const int i = e % 16, j = e / 16 * 4;
    C scores[rows][4] = {}, products[rows][4] = {};
    if (at.sees(i + Tile - 16, j)) {
      dot_block<Tile>(scores, q + i * z.stride, k + j * z.stride, z);
      dot_block<Tile>(products, dout + i * z.stride, v + j * z.stride, z);
    }
    for (int r = 0; r < rows; ++r) {
      const int query = i + 16 * r;
      C logsumexp = 0, dot = 0, factors[4] = {1, 1, 1, 1};
      if (query < at.queries) {
        const std::int64_t row = at.head / z.heads * z.sequence + at.first_query + query;
        logsumexp = a.logsumexp[at.head * z.sequence + at.first_query + query];
        dot = *a.dots.at(row, at.head % z.heads * z.depth);
      }
      if (a.masked) mask_factors(factors, a.mask, z, at, query, j);
      Quad<C> probability, gradient;
      for (int l = 0; l < 4; ++l) {
        const bool seen = query < at.queries && at.sees(query, j + l);
        const C value = exponential(scores[r][l] - logsumexp);
        probability.v[l] = seen ? value * factors[l] : C(0);
        gradient.v[l] = seen ? value * (factors[l] * products[r][l] - dot) : C(0);
      }
      quad_at(ds + query * z.square_stride + j) = gradient;
      if constexpr (KeepP) quad_at(p + query * z.square_stride + j) = probability;
    }
  }
}

// One team per key-value head and tile of keys: sums over its query heads in ascending order, and over queries.
template <int Tile, class T>
void attention_key_value_gradients(const ExecutionSpace& space, const BlockBackward<Tile, T>& a, std::int64_t batch) {
  using C = Compute<T>;
  const int bytes = block_bytes<C>(a.elements(2));
  const std::int64_t groups = batch * a.z.groups;  // over the batch
  Kokkos::parallel_for(
      "minipipe::attention::key_value_gradients", block_policy<C>(space, groups * a.z.tiles, bytes),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const auto& z = a.z;
        C* const q = block_scratch<C>(team, bytes);
        C *const dout = q + z.elements(), *const k = dout + z.elements(), *const v = k + z.elements();
        C *const ds = v + z.elements(), *const p = ds + z.square();
        // The first tiles of keys meet the most queries: they start first.
        const int key_tile = static_cast<int>(team.league_rank() / groups);
        const std::int64_t entry = team.league_rank() % groups / z.groups, group = team.league_rank() % groups % z.groups;
        TilePair at;
        at.first_key = static_cast<std::int64_t>(key_tile) * Tile;
        at.keys = z.filled(key_tile);
        const std::int64_t key_row = entry * z.sequence + at.first_key, key_column = group * z.depth;
        load_block<Tile>(team, k, z, a.k.at(key_row, key_column), a.k.stride, at.keys, C(1));
        load_block<Tile>(team, v, z, a.v.at(key_row, key_column), a.v.stride, at.keys, C(1));
        C dk[held_blocks][4][4] = {}, dv[held_blocks][4][4] = {};
        for (int query_head = 0; query_head < z.share; ++query_head) {
          at.head = entry * z.heads + group * z.share + query_head;
          const std::int64_t column = (group * z.share + query_head) * z.depth;
          for (int tile = key_tile; tile < z.tiles; ++tile) {
            at.first_query = static_cast<std::int64_t>(tile) * Tile;
            at.queries = z.filled(tile);
            at.diagonal = tile == key_tile;
            const std::int64_t row = entry * z.sequence + at.first_query;
            load_block<Tile>(team, q, z, a.q.at(row, column), a.q.stride, at.queries, a.scale);
            load_block<Tile>(team, dout, z, a.dout.at(row, column), a.dout.stride, at.queries, C(1));
            team.team_barrier();
            score_gradients<true>(team, a, at, q, dout, k, v, ds, p);
            team.team_barrier();
            for (int h = 0; h < held_blocks; ++h) {
              const int block = team.team_rank() + h * team.team_size();
              if (block >= z.blocks()) continue;
              const int d = block % z.quads * 4, j = block / z.quads * 4;
              const int first = at.diagonal ? j : 0;  // queries before the key see nothing of it
              multiply_transposed_block<Tile>(dv[h], p + j, dout + d, z, first, at.queries);
              multiply_transposed_block<Tile>(dk[h], ds + j, q + d, z, first, at.queries);
            }
            team.team_barrier();
          }
        }
        const C ones[4] = {1, 1, 1, 1};
        T* const to_k = a.dk.at(key_row, key_column);
        T* const to_v = a.dv.at(key_row, key_column);
        for (int h = 0; h < held_blocks; ++h) {
          const int block = team.team_rank() + h * team.team_size();
          if (block >= z.blocks()) continue;
          const int quad = block % z.quads, j = block / z.quads * 4;
          store_block<Tile>(to_k, a.dk.stride, dk[h], z, j, at.keys, quad, ones);
          store_block<Tile>(to_v, a.dv.stride, dv[h], z, j, at.keys, quad, ones);
        }
      });
}

// One team per query head and tile of queries: sums over keys in ascending order.
template <int Tile, class T>
void attention_query_gradients(const ExecutionSpace& space, const BlockBackward<Tile, T>& a, std::int64_t batch) {
  using C = Compute<T>;
  const int bytes = block_bytes<C>(a.elements(1));
  const std::int64_t heads = batch * a.z.heads;  // over the batch
  Kokkos::parallel_for(
      "minipipe::attention::query_gradients", block_policy<C>(space, heads * a.z.tiles, bytes),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const auto& z = a.z;
        C* const q = block_scratch<C>(team, bytes);
        C *const dout = q + z.elements(), *const k = dout + z.elements(), *const v = k + z.elements();
        C* const ds = v + z.elements();
        // The last tiles of queries see the most keys: they start first.
        const int tile = z.tiles - 1 - static_cast<int>(team.league_rank() / heads);
        TilePair at;
        at.head = team.league_rank() % heads;
        at.first_query = static_cast<std::int64_t>(tile) * Tile;
        at.queries = z.filled(tile);
        const std::int64_t first_row = at.head / z.heads * z.sequence, row = first_row + at.first_query;
        const std::int64_t column = at.head % z.heads * z.depth, key_column = at.head % z.heads / z.share * z.depth;
        load_block<Tile>(team, q, z, a.q.at(row, column), a.q.stride, at.queries, C(1));
        load_block<Tile>(team, dout, z, a.dout.at(row, column), a.dout.stride, at.queries, C(1));
        C dq[held_blocks][4][4] = {};
        for (int key_tile = 0; key_tile <= tile; ++key_tile) {
          at.first_key = static_cast<std::int64_t>(key_tile) * Tile;
          at.keys = z.filled(key_tile);
          at.diagonal = key_tile == tile;
          const std::int64_t key_row = first_row + at.first_key;
          load_block<Tile>(team, k, z, a.k.at(key_row, key_column), a.k.stride, at.keys, a.scale);
          load_block<Tile>(team, v, z, a.v.at(key_row, key_column), a.v.stride, at.keys, C(1));
          team.team_barrier();
          score_gradients<false>(team, a, at, q, dout, k, v, ds, static_cast<C*>(nullptr));
          team.team_barrier();
          for (int h = 0; h < held_blocks; ++h) {
            const int block = team.team_rank() + h * team.team_size();
            if (block >= z.blocks()) continue;
            const int d = block % z.quads * 4, i = block / z.quads * 4;
            multiply_block<Tile>(dq[h], ds + i * z.square_stride, k + d, z, at.diagonal ? i / 4 + 1 : (at.keys + 3) / 4);
          }
          team.team_barrier();
        }
        const C ones[4] = {1, 1, 1, 1};
        T* const to_q = a.dq.at(row, column);
        for (int h = 0; h < held_blocks; ++h) {
          const int block = team.team_rank() + h * team.team_size();
          if (block >= z.blocks()) continue;
          store_block<Tile>(to_q, a.dq.stride, dq[h], z, block / z.quads * 4, at.queries, block % z.quads, ones);
        }
      });
}

// Arguments as those of attention_backward, checked; `sums`: where gradients of queries would be added up. False, with nothing
// done, for heads too large.
template <class T>
bool attention_backward_device(const ExecutionSpace& space, const Qkv<T>& qkv_gradient, const ConstMatrix<T>& output_gradient,
                               const Qkv<const T>& qkv, const ConstMatrix<T>& out, const ConstVector<Compute<T>>& logsumexp,
                               const AttentionShape& shape, const Dropout& dropout, const Columns<Compute<T>>& sums) {
  using C = Compute<T>;
  const std::int64_t columns = extent(out, 1);
  const AttentionSizes sizes(shape, columns);
  const auto arrays = [&](auto tile) {
    return BlockBackward<tile.value, T>{BlockSizes<tile.value>(shape, columns),
                                        qkv_gradient.q,
                                        qkv_gradient.k,
                                        qkv_gradient.v,
                                        qkv.q,
                                        qkv.k,
                                        qkv.v,
                                        columns_of(output_gradient),
                                        logsumexp.data(),
                                        sums,
                                        DropoutMask<C>(dropout),
                                        dropout.probability > 0,
                                        static_cast<C>(1 / std::sqrt(static_cast<double>(sizes.depth)))};
  };
  return with_block_tile(
      sizes.depth, sizeof(C), [&](auto tile) { return arrays(tile).elements(2); },
      [&](auto tile) {
        const auto a = arrays(tile);
        attention_row_dots<T>(space, sums, output_gradient, out, sizes);
        attention_key_value_gradients(space, a, shape.batch);
        attention_query_gradients(space, a, shape.batch);
      });
}

}  // namespace minipipe::core
