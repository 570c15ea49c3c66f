#include "core/kernels/attention_lanes.hpp"

// Lanes are keys: a tile of keys and values is packed and transposed and meets the queries after it, which are packed once per
// head; the gradients of both stay in scratch meanwhile. Those of queries are added up over tiles of keys in ascending order.
namespace minipipe::core {

namespace {

// (Unused: where kernels run on a device, nothing here is.)
[[maybe_unused]] constexpr int tile = 64;                                  // queries and keys of a tile
[[maybe_unused]] constexpr int score_rows = lane_registers == 32 ? 8 : 4;  // queries of a block of scores in registers
[[maybe_unused]] constexpr int score_vectors = 2;                          // vectors of keys of such a block

template <int Stride>
struct BackwardScratch {
  float *k, *k_transposed, *v_transposed, *p, *ds;  // of a tile
  float *dk, *dv;                                   // of a tile; of the whole sequence if several heads share the keys
  float *q, *dout, *dq, *row_dot;                   // of one head

  static std::size_t padded(const AttentionSizes& z) { return static_cast<std::size_t>((z.sequence + tile - 1) / tile) * tile; }
  static std::size_t key_rows(const AttentionSizes& z) { return z.share > 1 ? padded(z) : tile; }
  static std::size_t elements(const AttentionSizes& z) {
    return Stride * (3 * tile + 2 * key_rows(z) + 3 * padded(z)) + 2 * tile * tile + padded(z);
  }
  BackwardScratch(float* memory, const AttentionSizes& z) {
    const std::size_t whole = padded(z) * Stride;
    k = memory;
    k_transposed = k + tile * Stride;
    v_transposed = k_transposed + tile * Stride;
    p = v_transposed + tile * Stride;
    ds = p + tile * tile;
    dk = ds + tile * tile;
    dv = dk + key_rows(z) * Stride;
    q = dv + key_rows(z) * Stride;
    dout = q + whole;
    dq = dout + whole;
    row_dot = dq + whole;
  }
};

// Positions of the tile from `first` on that exist.
[[maybe_unused]] int filled(const AttentionSizes& z, std::int64_t first) {
  return static_cast<int>(z.sequence - first < tile ? z.sequence - first : tile);
}

template <int Stride, int Vectors>
[[gnu::always_inline]] inline void store_block(float* c, const float* a, const float* b, int depth) {
  Lanes sums[score_rows][Vectors] = {};
  add_products<Stride, 1, tile>(sums, a, b, depth);
  MINIPIPE_UNROLL(32)
  for (int r = 0; r < score_rows; ++r) {
    MINIPIPE_UNROLL(32)
    for (int v = 0; v < Vectors; ++v) {
      store_lanes(c + r * tile + v * lane_count, sums[r][v]);
    }
  }
}

// Vectors of keys that the block of queries of query i has scores with.
[[maybe_unused]] int seen_vectors(int i, bool diagonal) {
  const int block_end = i / score_rows * score_rows + score_rows;
  return diagonal ? (block_end + lane_count - 1) / lane_count : tile / lane_count;
}

// c[i][j] = a[i] . b[.][j] for what the queries i see.
template <int Stride>
[[gnu::noinline]] void scores(float* c, const float* a, const float* b, int queries, int depth, bool diagonal) {
  for (int v = 0; v < tile / lane_count; v += score_vectors) {
    for (int i = 0; i < queries; i += score_rows) {
      const int left = seen_vectors(i, diagonal) - v;
      float* to = c + i * tile + v * lane_count;
      if (left >= score_vectors) {
        store_block<Stride, score_vectors>(to, a + i * Stride, b + v * lane_count, depth);
      } else if (left > 0) {
        store_block<Stride, 1>(to, a + i * Stride, b + v * lane_count, depth);
      }
    }
  }
}

// c[j] (+)= sums over queries i of a[i][j] b[i], on the diagonal from the block of j on: a query before a key sees nothing of
// it.
template <int Stride>
[[gnu::noinline]] void key_sums(float* c, const float* a, const float* b, int keys, int queries, bool diagonal, bool add) {
  const auto from = [=](int j) { return diagonal ? j : 0; };
  const auto to = [=](int) { return queries; };
  multiply_tile<Stride, 1, tile>(c, keys, a, b, add, from, to, [](int) { return 1.0F; });
}

// c[i] (+)= sums over keys j of a[i][j] b[j], on the diagonal up to the block of i.
template <int Stride>
[[gnu::noinline]] void query_sums(float* c, const float* a, const float* b, int queries, int keys, bool diagonal, bool add) {
  constexpr int rows = LaneBlock<Stride>::rows;
  const auto from = [](int) { return 0; };
  const auto to = [=](int i) { return diagonal && i + rows < keys ? i + rows : keys; };
  multiply_tile<Stride, tile, 1>(c, queries, a, b, add, from, to, [](int) { return 1.0F; });
}

// Row i: p holds scores and ds holds dout.v; afterwards p holds the probabilities as they met the values (after dropout) and ds
// the gradient of the scores, both 0 for keys after the query (`visible` and further).
template <class Mask>
[[gnu::always_inline]] inline void score_gradient_row(float* p, float* ds, int visible, int vectors, float logsumexp,
                                                      float row_dot, const Mask& mask) {
  mask(ds);
  for (int v = 0; v < vectors; ++v) {
    Lanes probability = exponential(load_lanes(p + v * lane_count) - all_lanes(logsumexp));
    probability = lane_indices() < visible - v * lane_count ? probability : Lanes{};
    store_lanes(p + v * lane_count, probability);
    store_lanes(ds + v * lane_count, probability * (load_lanes(ds + v * lane_count) - all_lanes(row_dot)));
  }
  mask(p);
}

template <int Stride, class T>
void store_rows(T* target, std::int64_t stride, const float* from, int rows, int depth) {
  for (int i = 0; i < rows; ++i) {
    for (int d = 0; d < depth; ++d) target[i * stride + d] = from[i * Stride + d];
  }
}

template <class T>
struct BackwardArguments {
  Qkv<T> gradient;
  Qkv<const T> qkv;
  Columns<const T> dout, out;
  const float* logsumexp;
  float score_scale;
};

// A head with its sequence: number `number` over the batch, in the columns from `column` on of the rows from `row` on.
struct BackwardHead {
  std::int64_t number, row, column;
};

template <int Stride, class T>
void load_head(const BackwardScratch<Stride>& t, const AttentionSizes& z, const BackwardArguments<T>& x,
               const BackwardHead& head) {
  const int rows = static_cast<int>(z.sequence), padded = static_cast<int>(t.padded(z)), depth = z.depth;
  pack_rows<Stride>(t.q, padded, columns_at(x.qkv.q, head.row, head.column), x.qkv.q.stride, rows, depth, x.score_scale);
  pack_rows<Stride>(t.dout, padded, columns_at(x.dout, head.row, head.column), x.dout.stride, rows, depth, 1.0F);
  for (int i = 0; i < rows; ++i) {
    const T* out = columns_at(x.out, head.row + i, head.column);
    prefetch_row(out + prefetch_rows * x.out.stride, depth);
    Lanes sums = {};
    for (int d = 0; d < depth; d += lane_count) {
      sums = multiply_add(load_lanes(t.dout + i * Stride + d), load_lanes(out + d, depth - d), sums);
    }
    t.row_dot[i] = sum_of_lanes(sums);
  }
}

// A tile of queries from `query` on with the tile of keys from `key` on; adds to dk and dv if `add`, else overwrites.
template <int Stride>
void tile_gradients(const BackwardScratch<Stride>& t, const AttentionSizes& z, std::int64_t query, std::int64_t key, float* dk,
                    float* dv, bool add, const float* logsumexp, const DropoutMask<float>* mask, std::int64_t head) {
  const int queries = filled(z, query), keys = filled(z, key), depth = z.depth;
  const bool diagonal = query == key;
  const float *q = t.q + query * Stride, *dout = t.dout + query * Stride;
  scores<Stride>(t.p, q, t.k_transposed, queries, depth, diagonal);
  scores<Stride>(t.ds, dout, t.v_transposed, queries, depth, diagonal);
  for (int i = 0; i < queries; ++i) {
    const int visible = diagonal ? i + 1 : tile;
    const auto drop = [&](float* values) {
      if (mask != nullptr) mask_row(*mask, z, head, query + i, key, values, visible < keys ? visible : keys);
    };
    score_gradient_row(t.p + i * tile, t.ds + i * tile, visible, seen_vectors(i, diagonal), logsumexp[query + i],
                       t.row_dot[query + i], drop);
  }
  key_sums<Stride>(dv, t.p, dout, keys, queries, diagonal, add);
  key_sums<Stride>(dk, t.ds, q, keys, queries, diagonal, add);
  query_sums<Stride>(t.dq + query * Stride, t.ds, t.k, queries, keys, diagonal, key > 0);
}

// One key-value head of one sequence.
template <int Stride, class T>
void backward_group(float* memory, const AttentionSizes& z, const BackwardArguments<T>& x, std::int64_t entry,
                    std::int64_t group, const DropoutMask<float>* mask) {
  const BackwardScratch<Stride> t(memory, z);
  const std::int64_t first_row = entry * z.sequence, shared_column = group * z.depth;
  const int depth = z.depth;
  for (int share = 0; share < z.share; ++share) {
    const std::int64_t in_entry = group * z.share + share;
    const BackwardHead head = {entry * z.heads + in_entry, first_row, in_entry * depth};
    load_head(t, z, x, head);
    for (std::int64_t key = 0; key < z.sequence; key += tile) {
      const int keys = filled(z, key);
      const T *k = columns_at(x.qkv.k, first_row + key, shared_column),
              *v = columns_at(x.qkv.v, first_row + key, shared_column);
      pack_rows<Stride>(t.k, keys, k, x.qkv.k.stride, keys, depth, x.score_scale);
      pack_transposed<tile>(t.k_transposed, k, x.qkv.k.stride, keys, depth, 1.0F);
      pack_transposed<tile>(t.v_transposed, v, x.qkv.v.stride, keys, depth, 1.0F);
      float *dk = z.share > 1 ? t.dk + key * Stride : t.dk, *dv = z.share > 1 ? t.dv + key * Stride : t.dv;
      for (std::int64_t query = key; query < z.sequence; query += tile) {
        tile_gradients(t, z, query, key, dk, dv, share > 0 || query > key, x.logsumexp + head.number * z.sequence, mask,
                       head.number);
      }
      if (share + 1 == z.share) {
        store_rows<Stride>(columns_at(x.gradient.k, first_row + key, shared_column), x.gradient.k.stride, dk, keys, depth);
        store_rows<Stride>(columns_at(x.gradient.v, first_row + key, shared_column), x.gradient.v.stride, dv, keys, depth);
      }
    }
    store_rows<Stride>(columns_at(x.gradient.q, first_row, head.column), x.gradient.q.stride, t.dq,
                       static_cast<int>(z.sequence), depth);
  }
}

}  // namespace

template <class T>
void attention_backward_lanes(const ExecutionSpace& space, const Qkv<T>& qkv_gradient, const ConstMatrix<T>& output_gradient,
                              const Qkv<const T>& qkv, const ConstMatrix<T>& out, const ConstVector<float>& logsumexp,
                              const AttentionShape& shape, const Dropout& dropout) {
  if constexpr (on_host) {
    const AttentionSizes z(shape, qkv.q.columns);
    const DropoutMask<float> mask(dropout);
    const bool masked = dropout.probability > 0;
    const auto score_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(z.depth)));
    const BackwardArguments<T> x = {qkv_gradient,     qkv,        columns_of(output_gradient), columns_of(out),
                                    logsumexp.data(), score_scale};
    with_lane_stride(z.depth, [&](auto stride) {
      using Scratch = BackwardScratch<decltype(stride)::value>;
      const auto policy = attention_policy(space, shape.batch * z.groups, (Scratch::elements(z) + line_floats) * sizeof(float));
      Kokkos::parallel_for("minipipe::attention::backward", policy, [=](const TeamMember& team) {
        backward_group<decltype(stride)::value>(lane_scratch(team, Scratch::elements(z)), z, x, team.league_rank() / z.groups,
                                                team.league_rank() % z.groups, masked ? &mask : nullptr);
      });
    });
  }
}

template void attention_backward_lanes<float>(const ExecutionSpace&, const Qkv<float>&, const ConstMatrix<float>&,
                                              const Qkv<const float>&, const ConstMatrix<float>&, const ConstVector<float>&,
                                              const AttentionShape&, const Dropout&);
template void attention_backward_lanes<bf16>(const ExecutionSpace&, const Qkv<bf16>&, const ConstMatrix<bf16>&,
                                             const Qkv<const bf16>&, const ConstMatrix<bf16>&, const ConstVector<float>&,
                                             const AttentionShape&, const Dropout&);

}  // namespace minipipe::core
