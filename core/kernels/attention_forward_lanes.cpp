#include "core/kernels/attention_lanes.hpp"

// Lanes are queries: with keys as rows, the maxima and sums of the softmax go down the rows, lane by lane, and what one lane
// sees of the keys ends at its own position.
namespace minipipe::core {

namespace {

// (Unused: where kernels run on a device, nothing here is.)
[[maybe_unused]] constexpr int query_lanes = 2 * lane_count;  // queries whose scores are formed together
[[maybe_unused]] constexpr int query_tile = 128;              // queries of one team
[[maybe_unused]] constexpr int key_tile = 64;
[[maybe_unused]] constexpr int score_rows = lane_registers == 32 ? 8 : 4;  // keys of a block of scores in registers

template <int Stride>
struct ForwardScratch {
  float *k, *v, *s, *shrink;
  float *q, *o, *largest, *total;  // of all queries; q: for each group of query_lanes the transpose

  static constexpr std::size_t elements() {
    return std::size_t{Stride} * 2 * (key_tile + query_tile) + (key_tile + 1) * query_lanes + 2 * query_tile;
  }
  explicit ForwardScratch(float* memory) {
    k = memory;
    v = k + key_tile * Stride;
    q = v + key_tile * Stride;
    o = q + query_tile * Stride;
    s = o + query_tile * Stride;
    shrink = s + key_tile * query_lanes;
    largest = shrink + query_lanes;
    total = largest + query_tile;
  }
};

// Scores of score_rows keys with Vectors vectors of queries. Diagonal: the first key is `offset` behind the first lane, and
// what lies after a query becomes the lowest value.
template <int Stride, int Vectors, bool Diagonal>
void score_block(float* s, const float* k, const float* q, int depth, int offset, Lanes* largest) {
  Lanes sums[score_rows][Vectors] = {};
  add_products<Stride, 1, query_lanes>(sums, k, q, depth);
  MINIPIPE_UNROLL(32)
  for (int v = 0; v < Vectors; ++v) {
    MINIPIPE_UNROLL(32)
    for (int r = 0; r < score_rows; ++r) {
      Lanes score = sums[r][v];
      if constexpr (Diagonal) {
        score = lane_indices() >= offset + r - v * lane_count ? score : all_lanes(lowest_value<float>);
      }
      store_lanes(s + r * query_lanes + v * lane_count, score);
      largest[v] = larger(score, largest[v]);
    }
  }
}

// Scores of the keys from `first` to `last` of a tile.
template <int Stride, int Vectors, bool Diagonal>
[[gnu::noinline]] void score_blocks(float* s, const float* k, const float* q, int depth, int first, int last, int offset,
                                    Lanes* largest) {
  for (int j = first; j < last; j += score_rows) {
    score_block<Stride, Vectors, Diagonal>(s + j * query_lanes, k + j * Stride, q, depth, j + offset, largest);
  }
}

// Scores of one vector of queries become exp(score - largest), and its running maximum and sum move on.
template <bool Diagonal>
[[gnu::noinline]] void online_softmax(float* s, int keys, int offset, Lanes block_largest, float* largest, float* total,
                                      float* shrink) {
  const Lanes before = load_lanes(largest), now = larger(block_largest, before);
  Lanes sum = {};
  for (int j = 0; j < keys; ++j) {
    Lanes p = exponential(load_lanes(s + j * query_lanes) - now);
    if constexpr (Diagonal) {
      p = lane_indices() >= offset + j ? p : Lanes{};
    }
    store_lanes(s + j * query_lanes, p);
    sum += p;
  }
  const Lanes factor = exponential(before - now);
  store_lanes(largest, now);
  store_lanes(shrink, factor);
  store_lanes(total, multiply_add(load_lanes(total), factor, sum));
}

template <int Stride>
[[gnu::noinline]] void add_values(float* o, const float* s, const float* v, const float* shrink, int queries, int keys,
                                  int diagonal, bool accumulate) {
  // A block of rows needs the keys up to its last query.
  const auto seen = [=](int i) {
    const int end = diagonal + i + LaneBlock<Stride>::rows;
    return end < keys ? end : keys;
  };
  multiply_tile<Stride, 1, query_lanes>(
      o, queries, s, v, accumulate, [](int) { return 0; }, seen, [=](int i) { return shrink[i]; });
}

template <class T>
struct ForwardSource {
  const T *q, *k, *v;  // of the first position of the sequence
  std::int64_t q_stride, k_stride, v_stride;
};

template <int Stride, class T>
void forward_tile(float* memory, const AttentionSizes& z, const ForwardSource<T>& from, T* out, float* logsumexp,
                  std::int64_t first_query, std::int64_t head, const DropoutMask<float>* mask, float score_scale) {
  const ForwardScratch<Stride> t(memory);
  const int depth = z.depth;
  const int queries = static_cast<int>(z.sequence - first_query < query_tile ? z.sequence - first_query : query_tile);
  for (int i = 0; i < queries; i += query_lanes) {
    pack_transposed<query_lanes>(t.q + i * Stride, from.q + (first_query + i) * from.q_stride, from.q_stride, queries - i,
                                 depth, score_scale);
  }
  for (int i = 0; i < query_tile; ++i) {
    t.largest[i] = lowest_value<float>;
    t.total[i] = 0;
  }
  for (std::int64_t first_key = 0; first_key < first_query + queries; first_key += key_tile) {
    const int keys = static_cast<int>(z.sequence - first_key < key_tile ? z.sequence - first_key : key_tile);
    pack_rows<Stride>(t.k, key_tile, from.k + first_key * from.k_stride, from.k_stride, keys, depth, 1.0F);
    pack_rows<Stride>(t.v, key_tile, from.v + first_key * from.v_stride, from.v_stride, keys, depth, 1.0F);
    for (int i = 0; i < queries; i += query_lanes) {
      const std::int64_t query = first_query + i;
      if (query + query_lanes <= first_key) continue;
      const float* q = t.q + i * Stride;
      const int vectors = queries - i > lane_count ? 2 : 1;
      Lanes largest[2] = {all_lanes(lowest_value<float>), all_lanes(lowest_value<float>)};
      // Whole rows of scores, then those of which part is masked, first of both vectors of queries, then of the second alone.
      const int ahead = static_cast<int>(query - first_key < key_tile ? query - first_key : key_tile);
      const int seen[2] = {ahead + lane_count < key_tile ? ahead + lane_count : key_tile,
                           ahead + query_lanes < key_tile ? ahead + query_lanes : key_tile};
      if (vectors == 2) {
        score_blocks<Stride, 2, false>(t.s, t.k, q, depth, 0, ahead, 0, largest);
        score_blocks<Stride, 2, true>(t.s, t.k, q, depth, ahead, seen[0], -ahead, largest);
        score_blocks<Stride, 1, true>(t.s + lane_count, t.k, q + lane_count, depth, seen[0], seen[1], -ahead - lane_count,
                                      largest + 1);
      } else {
        score_blocks<Stride, 1, false>(t.s, t.k, q, depth, 0, ahead, 0, largest);
        score_blocks<Stride, 1, true>(t.s, t.k, q, depth, ahead, seen[0], -ahead, largest);
      }
      for (int v = 0; v < vectors; ++v) {
        float* s = t.s + v * lane_count;
        const int lane = i + v * lane_count;
        const auto softmax = ahead < key_tile ? online_softmax<true> : online_softmax<false>;
        softmax(s, seen[v], -ahead - v * lane_count, largest[v], t.largest + lane, t.total + lane, t.shrink + v * lane_count);
        if (mask != nullptr) {
          const int left = queries - lane < lane_count ? queries - lane : lane_count;
          for (int l = 0; l < left; ++l) {
            mask_row(*mask, z, head, query + v * lane_count + l, first_key, s + l, seen[v], query_lanes);
          }
        }
      }
      add_values<Stride>(t.o + i * Stride, t.s, t.v, t.shrink, vectors * lane_count, keys, ahead, first_key > 0);
    }
  }
  for (int i = 0; i < queries; ++i) {
    const float inverse = 1 / t.total[i];
    T* target = out + (first_query + i) * z.width;
    for (int d = 0; d < depth; ++d) {
      target[d] = t.o[i * Stride + d] * inverse;
    }
    logsumexp[first_query + i] = t.largest[i] + logarithm(t.total[i]);
  }
}

}  // namespace

template <class T>
void attention_forward_lanes(const ExecutionSpace& space, const Matrix<T>& out, const Vector<float>& logsumexp,
                             const Qkv<const T>& qkv, const AttentionShape& shape, const Dropout& dropout) {
  if constexpr (on_host) {
    const AttentionSizes z(shape, qkv.q.columns);
    const DropoutMask<float> mask(dropout);
    const bool masked = dropout.probability > 0;
    const std::int64_t tiles = (z.sequence + query_tile - 1) / query_tile;
    const auto score_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(z.depth)));
    with_lane_stride(z.depth, [&](auto stride) {
      using Scratch = ForwardScratch<decltype(stride)::value>;
      const auto policy =
          attention_policy(space, shape.batch * shape.heads * tiles, (Scratch::elements() + line_floats) * sizeof(float));
      Kokkos::parallel_for("minipipe::attention::forward", policy, [=](const TeamMember& team) {
        const std::int64_t head = team.league_rank() / tiles;  // over the batch: b H + h
        const std::int64_t first_row = head / z.heads * z.sequence, column = head % z.heads * z.depth;
        const std::int64_t shared_column = head % z.heads / z.share * z.depth;  // of the key-value head
        const ForwardSource<T> from = {columns_at(qkv.q, first_row, column),
                                       columns_at(qkv.k, first_row, shared_column),
                                       columns_at(qkv.v, first_row, shared_column),
                                       qkv.q.stride,
                                       qkv.k.stride,
                                       qkv.v.stride};
        forward_tile<decltype(stride)::value>(lane_scratch(team, Scratch::elements()), z, from,
                                              out.data() + first_row * z.width + column, logsumexp.data() + head * z.sequence,
                                              team.league_rank() % tiles * query_tile, head, masked ? &mask : nullptr,
                                              score_scale);
      });
    });
  }
}

template void attention_forward_lanes<float>(const ExecutionSpace&, const Matrix<float>&, const Vector<float>&,
                                             const Qkv<const float>&, const AttentionShape&, const Dropout&);
template void attention_forward_lanes<bf16>(const ExecutionSpace&, const Matrix<bf16>&, const Vector<float>&,
                                            const Qkv<const bf16>&, const AttentionShape&, const Dropout&);

}  // namespace minipipe::core
