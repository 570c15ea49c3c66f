#include "core/kernels/attention_backward_device.hpp"
#include "core/kernels/attention_lanes.hpp"

namespace minipipe::core {

namespace {

// k and v are transposed (depth x attention_tile) where they meet queries, k also straight for the gradient of the queries.
template <class T>
struct BackwardTiles {
  T *q, *dout, *k, *dk, *dv, *dq, *k_transposed, *v_transposed, *p, *ds, *row_dot;

  KOKKOS_INLINE_FUNCTION static std::int64_t elements(const AttentionSizes& z) {
    return static_cast<std::int64_t>(attention_tile) * (6 * z.padded_depth + 2 * z.depth + 2 * attention_tile + 1);
  }
  KOKKOS_INLINE_FUNCTION BackwardTiles(T* memory, const AttentionSizes& z) {
    const int wide = attention_tile * z.padded_depth, tall = attention_tile * z.depth, square = attention_tile * attention_tile;
    q = memory;
    dout = q + wide;
    k = dout + wide;
    dk = k + wide;
    dv = dk + wide;
    dq = dv + wide;
    k_transposed = dq + wide;
    v_transposed = k_transposed + tall;
    p = v_transposed + tall;
    ds = p + square;
    row_dot = ds + square;
  }
};

// Row i: p holds scores and ds holds dout.v; afterwards p holds the probabilities as they met the values (after dropout) and ds
// the gradient of the scores. Entries from `visible` to `end` become 0.
template <class T>
KOKKOS_INLINE_FUNCTION void score_gradient_row(const BackwardTiles<T>& t, int i, int visible, int end, T logsumexp, bool masked,
                                               const DropoutMask<T>& mask, const AttentionSizes& z, std::int64_t head,
                                               std::int64_t query, std::int64_t first_key) {
  T* p = t.p + i * attention_tile;
  T* ds = t.ds + i * attention_tile;
  const T dot = t.row_dot[i];
  for (int j = 0; j < visible; ++j) {
    p[j] = exponential(p[j] - logsumexp);
  }
  if (masked) {
    mask_row(mask, z, head, query, first_key, ds, visible);
  }
  for (int j = 0; j < visible; ++j) {
    ds[j] = p[j] * (ds[j] - dot);
  }
  if (masked) {
    mask_row(mask, z, head, query, first_key, p, visible);
  }
  for (int j = visible; j < end; ++j) {
    p[j] = 0;
    ds[j] = 0;
  }
}

template <class T>
KOKKOS_INLINE_FUNCTION void store_tile(const TeamMember& team, T* target, std::int64_t stride, const Compute<T>* tile,
                                       int padded_depth, int rows, int depth) {
  Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](const int i) {
    for (int d = 0; d < depth; ++d) {
      target[i * stride + d] = tile[i * padded_depth + d];
    }
  });
  team.team_barrier();
}

// Where gradients of queries are added up: in place, or in wider numbers elsewhere.
template <class T>
Columns<Compute<T>> running_sums(const Columns<T>& gradients, const Matrix<Compute<T>>& query_sums) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return gradients;
  } else {
    return columns_of(query_sums);
  }
}

template <class T>
bool fits_sums(const Matrix<Compute<T>>& query_sums, std::int64_t rows, std::int64_t columns) {
  return std::is_same_v<T, Compute<T>> || (extent(query_sums, 0) == rows && extent(query_sums, 1) == columns);
}

}  // namespace

// Here, in the form for hosts and for a device's heads that are larger than its blocks, one team per key-value head: the
// gradients of its keys and values are added up over its query heads, that of the queries over key tiles in ascending order, in
// place.
template <class T>
void attention_backward(const ExecutionSpace& space, const Qkv<T>& qkv_gradient, ConstMatrix<T> output_gradient,
                        const Qkv<const T>& qkv, ConstMatrix<T> out, ConstVector<Compute<T>> logsumexp,
                        const AttentionShape& shape, const Dropout& dropout, Matrix<Compute<T>> query_sums) {
  using C = Compute<T>;
  const std::int64_t rows = shape.batch * shape.sequence, columns = extent(out, 1);
  require_attention(extent(out, 0) == rows && fits_attention(qkv, shape, columns) &&
                        fits_attention<const T>(qkv_gradient, shape, columns) && extent(output_gradient, 0) == rows &&
                        extent(output_gradient, 1) == columns && fits_sums<T>(query_sums, rows, columns) &&
                        extent(logsumexp, 0) == rows * shape.heads,
                    shape, columns, dropout, "attention_backward");
  const AttentionSizes z(shape, columns);
  if constexpr (lanes_for<T>) {
    if (fits_lanes(z)) {
      return attention_backward_lanes<T>(space, qkv_gradient, output_gradient, qkv, out, logsumexp, shape, dropout);
    }
  }
  if constexpr (!on_host) {
    const Columns<C> room = running_sums<T>(qkv_gradient.q, query_sums);
    if (attention_backward_device<T>(space, qkv_gradient, output_gradient, qkv, out, logsumexp, shape, dropout, room)) return;
  }
  const DropoutMask<C> mask(dropout);
  const bool masked = dropout.probability > 0;
  const C score_scale = static_cast<C>(1 / std::sqrt(static_cast<double>(z.depth)));
  const Columns<const T> queries_of = qkv.q, keys_of = qkv.k, values_of = qkv.v;
  const Columns<C> sums = running_sums<T>(qkv_gradient.q, query_sums);
  const Columns<T> to_queries = qkv_gradient.q, to_keys = qkv_gradient.k, to_values = qkv_gradient.v;
  const int bytes = scratch_bytes<C>(BackwardTiles<C>::elements(z)), level = attention_level(bytes);
  Kokkos::parallel_for(
      "minipipe::attention::backward", attention_policy(space, shape.batch * z.groups, bytes),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const BackwardTiles<C> t(static_cast<C*>(team.team_scratch(level).get_shmem(bytes)), z);
        const std::int64_t entry = team.league_rank() / z.groups, group = team.league_rank() % z.groups;
        const std::int64_t first_row = entry * z.sequence;
        const std::int64_t shared_column = group * z.depth;
        const int wide = z.padded_depth, depth = z.depth;
        const auto zero = [](int) { return 0; };
        const auto all_depth = [=](int) { return depth; };
        const auto all_columns = [=](int) { return wide; };
        for (int key_tile = 0; key_tile < z.tiles; ++key_tile) {
          const std::int64_t first_key = static_cast<std::int64_t>(key_tile) * attention_tile;
          const int keys = z.filled(key_tile), padded_keys = round_up(keys, tile_rows);
          const std::int64_t key_row = first_row + first_key;
          const T* keys_source = keys_of.data + key_row * keys_of.stride + shared_column;
          const T* values_source = values_of.data + key_row * values_of.stride + shared_column;
          load_tile(team, t.k, padded_keys, wide, keys_source, keys_of.stride, keys, depth, score_scale);
          load_transposed(team, t.k_transposed, attention_tile, keys_source, keys_of.stride, keys, depth);
          load_transposed(team, t.v_transposed, attention_tile, values_source, values_of.stride, keys, depth);
          load_tile(team, t.dk, padded_keys, wide, keys_source, keys_of.stride, 0, depth, C(1));
          load_tile(team, t.dv, padded_keys, wide, keys_source, keys_of.stride, 0, depth, C(1));
          const int query_tiles = z.tiles - key_tile;
          for (int pair = 0; pair < z.share * query_tiles; ++pair) {  // query heads, and the tiles of each
            const std::int64_t query_head = group * z.share + pair / query_tiles;
            const int tile = key_tile + pair % query_tiles;
            const std::int64_t head = entry * z.heads + query_head;  // over the batch
            const std::int64_t column = query_head * z.depth;
            const std::int64_t first_query = static_cast<std::int64_t>(tile) * attention_tile;
            const int queries = z.filled(tile), padded = round_up(queries, tile_rows);
            const bool diagonal = key_tile == tile;
            const std::int64_t query_row = first_row + first_query;
            const T* gradient = output_gradient.data() + query_row * z.width + column;
            const T* result = out.data() + query_row * z.width + column;
            T* target = to_queries.data + query_row * to_queries.stride + column;
            load_tile(team, t.q, padded, wide, queries_of.data + query_row * queries_of.stride + column, queries_of.stride,
                      queries, depth, score_scale);
            load_tile(team, t.dout, padded, wide, gradient, z.width, queries, depth, C(1));
            const auto seen = [=](int i) { return diagonal && i + tile_rows < keys ? i + tile_rows : keys; };
            const auto seen_columns = [=](int i) { return round_up(seen(i), tile_columns); };
            tile_multiply<false, false>(team, padded, t.p, attention_tile, t.q, wide, t.k_transposed, attention_tile, zero,
                                        all_depth, seen_columns);
            tile_multiply<false, false>(team, padded, t.ds, attention_tile, t.dout, wide, t.v_transposed, attention_tile, zero,
                                        all_depth, seen_columns);
            Kokkos::parallel_for(Kokkos::TeamThreadRange(team, padded), [&](const int i) {
              if (i >= queries) {
                for (int j = 0; j < attention_tile; ++j) {
                  t.p[i * attention_tile + j] = 0;
                  t.ds[i * attention_tile + j] = 0;
                }
                return;
              }
              C lanes[sum_lanes] = {};
              for (int d = 0; d < depth; ++d) {
                lanes[d % sum_lanes] += gradient[i * z.width + d] * result[i * z.width + d];
              }
              C dot = 0;
              for (const C lane : lanes) {
                dot += lane;
              }
              t.row_dot[i] = dot;
              const int visible = diagonal && i + 1 < keys ? i + 1 : keys;
              score_gradient_row(t, i, visible, attention_tile, logsumexp(head * z.sequence + first_query + i), masked, mask, z,
                                 head, first_query + i, first_key);
            });
            team.team_barrier();
            // Queries before the key see nothing of it: on the diagonal the sum over queries starts at the row block.
            const auto from = [=](int j) { return diagonal ? j : 0; };
            const auto to = [=](int) { return queries; };
            tile_multiply<true, true>(team, padded_keys, t.dv, wide, t.p, attention_tile, t.dout, wide, from, to, all_columns);
            tile_multiply<true, true>(team, padded_keys, t.dk, wide, t.ds, attention_tile, t.q, wide, from, to, all_columns);
            // The first time there is nothing to add to.
            C* sum = sums.data + query_row * sums.stride + column;
            load_tile(team, t.dq, padded, wide, static_cast<const C*>(sum), sums.stride, key_tile == 0 ? 0 : queries, depth,
                      C(1));
            tile_multiply<false, true>(team, padded, t.dq, wide, t.ds, attention_tile, t.k, wide, zero, seen, all_columns);
            if (diagonal) {  // the last of the query's key tiles
              store_tile(team, target, to_queries.stride, t.dq, wide, queries, depth);
            } else {
              store_tile(team, sum, sums.stride, t.dq, wide, queries, depth);
            }
          }
          store_tile(team, to_keys.data + key_row * to_keys.stride + shared_column, to_keys.stride, t.dk, wide, keys, depth);
          store_tile(team, to_values.data + key_row * to_values.stride + shared_column, to_values.stride, t.dv, wide, keys,
                     depth);
        }
      });
}

template void attention_backward<float>(const ExecutionSpace&, const Qkv<float>&, ConstMatrix<float>, const Qkv<const float>&,
                                        ConstMatrix<float>, ConstVector<float>, const AttentionShape&, const Dropout&,
                                        Matrix<float>);
template void attention_backward<bf16>(const ExecutionSpace&, const Qkv<bf16>&, ConstMatrix<bf16>, const Qkv<const bf16>&,
                                       ConstMatrix<bf16>, ConstVector<float>, const AttentionShape&, const Dropout&,
                                       Matrix<float>);
template void attention_backward<double>(const ExecutionSpace&, const Qkv<double>&, ConstMatrix<double>,
                                         const Qkv<const double>&, ConstMatrix<double>, ConstVector<double>,
                                         const AttentionShape&, const Dropout&, Matrix<double>);

}  // namespace minipipe::core
