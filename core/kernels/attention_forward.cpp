#include "core/kernels/attention_forward_device.hpp"
#include "core/kernels/attention_lanes.hpp"

namespace minipipe::core {

namespace {

template <class T>
struct ForwardTiles {
  T *q, *k, *v, *s, *o, *largest, *total;

  KOKKOS_INLINE_FUNCTION static std::int64_t elements(const AttentionSizes& z) {
    return static_cast<std::int64_t>(attention_tile) * (3 * z.padded_depth + z.depth + attention_tile + 2);
  }
  KOKKOS_INLINE_FUNCTION ForwardTiles(T* memory, const AttentionSizes& z) {
    const int wide = attention_tile * z.padded_depth;
    q = memory;
    v = q + wide;
    o = v + wide;
    k = o + wide;  // transposed: depth x attention_tile
    s = k + attention_tile * z.depth;
    largest = s + attention_tile * attention_tile;
    total = largest + attention_tile;
  }
};

// One row of a tile: scores become exp(score - largest), the running maximum and sum move on, and so does the row of o.
template <class T>
KOKKOS_INLINE_FUNCTION void online_softmax_row(const ForwardTiles<T>& t, const AttentionSizes& z, int i, int visible, int end) {
  T* s = t.s + i * attention_tile;
  T lanes[sum_lanes];
  for (int l = 0; l < sum_lanes; ++l) {
    lanes[l] = t.largest[i];
  }
  for (int j = visible; j < end; ++j) {
    s[j] = lowest_value<T>;
  }
  const int even = round_up(visible, sum_lanes) < end ? round_up(visible, sum_lanes) : end;
  for (int j = 0; j < even; j += sum_lanes) {
    for (int l = 0; l < sum_lanes; ++l) {
      lanes[l] = lanes[l] < s[j + l] ? s[j + l] : lanes[l];
    }
  }
  T largest = lanes[0];
  for (int l = 1; l < sum_lanes; ++l) {
    largest = largest < lanes[l] ? lanes[l] : largest;
  }
  for (int j = 0; j < even; ++j) {
    s[j] = exponential(s[j] - largest);
  }
  for (int j = visible; j < end; ++j) {
    s[j] = 0;
  }
  for (int l = 0; l < sum_lanes; ++l) {
    lanes[l] = 0;
  }
  for (int j = 0; j < even; j += sum_lanes) {
    for (int l = 0; l < sum_lanes; ++l) {
      lanes[l] += s[j + l];
    }
  }
  for (int half = sum_lanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) {
      lanes[l] += lanes[l + half];
    }
  }
  const T shrink = exponential(t.largest[i] - largest);
  t.total[i] = t.total[i] * shrink + lanes[0];
  t.largest[i] = largest;
  T* o = t.o + i * z.padded_depth;
  for (int d = 0; d < z.padded_depth; ++d) {
    o[d] *= shrink;
  }
}

}  // namespace

template <class T>
void attention_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> logsumexp, const Qkv<const T>& qkv,
                       const AttentionShape& shape, const Dropout& dropout) {
  using C = Compute<T>;
  const std::int64_t rows = shape.batch * shape.sequence, columns = extent(out, 1);
  require_attention(extent(out, 0) == rows && fits_attention(qkv, shape, columns) && extent(logsumexp, 0) == rows * shape.heads,
                    shape, columns, dropout, "attention_forward");
  const AttentionSizes z(shape, columns);
  if constexpr (lanes_for<T>) {
    if (fits_lanes(z)) return attention_forward_lanes<T>(space, out, logsumexp, qkv, shape, dropout);
  }
  if constexpr (!on_host) {
    if (attention_forward_device<T>(space, out, logsumexp, qkv, shape, dropout)) return;
  }
  const DropoutMask<C> mask(dropout);
  const bool masked = dropout.probability > 0;
  const Columns<const T> queries_of = qkv.q, keys_of = qkv.k, values_of = qkv.v;
  const C score_scale = static_cast<C>(1 / std::sqrt(static_cast<double>(z.depth)));
  const int bytes = scratch_bytes<C>(ForwardTiles<C>::elements(z)), level = attention_level(bytes);
  Kokkos::parallel_for(
      "minipipe::attention::forward", attention_policy(space, shape.batch * shape.heads * z.tiles, bytes),
      KOKKOS_LAMBDA(const TeamMember& team) {
        const ForwardTiles<C> t(static_cast<C*>(team.team_scratch(level).get_shmem(bytes)), z);
        const int tile = static_cast<int>(team.league_rank() % z.tiles);
        const std::int64_t head = team.league_rank() / z.tiles;  // over the batch: b H + h
        const std::int64_t first_row = head / z.heads * z.sequence;
        const std::int64_t column = head % z.heads * z.depth;
        const std::int64_t first_query = static_cast<std::int64_t>(tile) * attention_tile;
        const int queries = z.filled(tile), padded = round_up(queries, tile_rows);
        const std::int64_t shared_column = head % z.heads / z.share * z.depth;  // of the key-value head
        load_tile(team, t.q, padded, z.padded_depth, queries_of.data + (first_row + first_query) * queries_of.stride + column,
                  queries_of.stride, queries, z.depth, score_scale);
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, padded), [&](const int i) {
          t.largest[i] = lowest_value<C>;
          t.total[i] = 0;
          for (int d = 0; d < z.padded_depth; ++d) {
            t.o[i * z.padded_depth + d] = 0;
          }
        });
        team.team_barrier();
        for (int key_tile = 0; key_tile <= tile; ++key_tile) {
          const std::int64_t first_key = static_cast<std::int64_t>(key_tile) * attention_tile;
          const int keys = z.filled(key_tile);
          const bool diagonal = key_tile == tile;
          const std::int64_t key_row = first_row + first_key;
          load_transposed(team, t.k, attention_tile, keys_of.data + key_row * keys_of.stride + shared_column, keys_of.stride,
                          keys, z.depth);
          load_tile(team, t.v, round_up(keys, tile_rows), z.padded_depth,
                    values_of.data + key_row * values_of.stride + shared_column, values_of.stride, keys, z.depth, C(1));
          // Keys that any query of the row block starting at i sees.
          const auto seen = [=](int i) { return diagonal && i + tile_rows < keys ? i + tile_rows : keys; };
          const auto zero = [](int) { return 0; };
          tile_multiply<false, false>(
              team, padded, t.s, attention_tile, t.q, z.padded_depth, t.k, attention_tile, zero, [=](int) { return z.depth; },
              [=](int i) { return round_up(seen(i), tile_columns); });
          Kokkos::parallel_for(Kokkos::TeamThreadRange(team, padded), [&](const int i) {
            const int visible = diagonal && i + 1 < keys ? i + 1 : keys;
            online_softmax_row(t, z, i, visible, attention_tile);
            if (masked) {
              mask_row(mask, z, head, first_query + i, first_key, t.s + i * attention_tile, visible);
            }
          });
          team.team_barrier();
          tile_multiply<false, true>(team, padded, t.o, z.padded_depth, t.s, attention_tile, t.v, z.padded_depth, zero, seen,
                                     [=](int) { return z.padded_depth; });
        }
        Kokkos::parallel_for(Kokkos::TeamThreadRange(team, queries), [&](const int i) {
          T* result = out.data() + (first_row + first_query + i) * z.width + column;
          const C inverse = C(1) / t.total[i];
          for (int d = 0; d < z.depth; ++d) {
            result[d] = t.o[i * z.padded_depth + d] * inverse;
          }
          logsumexp(head * z.sequence + first_query + i) = t.largest[i] + logarithm(t.total[i]);
        });
      });
}

template void attention_forward<float>(const ExecutionSpace&, Matrix<float>, Vector<float>, const Qkv<const float>&,
                                       const AttentionShape&, const Dropout&);
template void attention_forward<bf16>(const ExecutionSpace&, Matrix<bf16>, Vector<float>, const Qkv<const bf16>&,
                                      const AttentionShape&, const Dropout&);
template void attention_forward<double>(const ExecutionSpace&, Matrix<double>, Vector<double>, const Qkv<const double>&,
                                        const AttentionShape&, const Dropout&);

}  // namespace minipipe::core
