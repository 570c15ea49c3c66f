#include "core/kernels/attention_lanes.hpp"

// Lanes are keys: a tile of keys and values is packed and transposed once and meets all queries of all heads that share it; its
// gradients stay in scratch meanwhile. Gradients of queries are added up over tiles of keys in ascending order, in memory.
namespace minipipe::core {

namespace {

constexpr int tile = 64;                                  // queries and keys of a tile
constexpr int score_rows = lane_registers == 32 ? 8 : 4;  // queries of a block of scores in registers
constexpr int score_vectors = 2;                          // vectors of keys of such a block

template <int Stride>
struct BackwardScratch {
  float *k, *k_transposed, *v_transposed, *dk, *dv, *q, *dout, *dq;
  float *p, *ds, *logsumexp, *row_dot;  // row_dot: of all queries of the heads that share a key

  static std::size_t elements(const AttentionSizes& z) {
    return std::size_t{tile} * (8 * Stride + 2 * tile + 1) + static_cast<std::size_t>(z.share * z.sequence);
  }
  explicit BackwardScratch(float* memory) {
    float** const tiles[] = {&k, &k_transposed, &v_transposed, &dk, &dv, &q, &dout, &dq};
    for (float** one : tiles) {
      *one = memory;
      memory += tile * Stride;
    }
    p = memory;
    ds = p + tile * tile;
    logsumexp = ds + tile * tile;
    row_dot = logsumexp + tile;
  }
};

template <int Stride, int Vectors>
[[gnu::always_inline]] inline void store_block(float* c, const float* a, const float* b, int depth) {
  Lanes sums[score_rows][Vectors] = {};
  add_products<Stride, 1, tile>(sums, a, b, depth);
#pragma GCC unroll 16
  for (int r = 0; r < score_rows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < Vectors; ++v) {
      store_lanes(c + r * tile + v * lane_count, sums[r][v]);
    }
  }
}

// c[i][j] = a[i] . b[.][j] for `rows` rows in whole blocks and `vectors(i)` vectors of columns.
template <int Stride, class Vectors>
[[gnu::always_inline]] inline void scores(float* c, const float* a, const float* b, int rows, int depth,
                                          const Vectors& vectors) {
  for (int v = 0; v < tile / lane_count; v += score_vectors) {
    for (int i = 0; i < rows; i += score_rows) {
      float* to = c + i * tile + v * lane_count;
      if (vectors(i) >= v + score_vectors) {
        store_block<Stride, score_vectors>(to, a + i * Stride, b + v * lane_count, depth);
      } else if (vectors(i) > v) {
        store_block<Stride, 1>(to, a + i * Stride, b + v * lane_count, depth);
      }
    }
  }
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

// The gradient of the queries: of the tiles before in `sums` (unless this is the first), of this one in dq.
template <int Stride, class T>
void add_queries(T* target, std::int64_t target_stride, const float* sums, std::int64_t stride, const float* dq, int queries,
                 int depth, bool first) {
  for (int i = 0; i < queries; ++i) {
    T* to = target + i * target_stride;
    const float *before = sums + i * stride, *more = dq + i * Stride;
    if (first) {
      for (int d = 0; d < depth; ++d) to[d] = more[d];
    } else {
#pragma GCC ivdep
      for (int d = 0; d < depth; ++d) to[d] = before[d] + more[d];
    }
  }
}

template <int Stride, class T>
void store_rows(T* target, std::int64_t stride, const float* from, int rows, int depth) {
  for (int i = 0; i < rows; ++i) {
    for (int d = 0; d < depth; ++d) target[i * stride + d] = from[i * Stride + d];
  }
}

// Rows `row` and further, columns `column` and further of `part`.
template <class T>
T* at(const Columns<T>& part, std::int64_t row, std::int64_t column) {
  return part.data + row * part.stride + column;
}

template <class T>
struct BackwardArguments {
  Qkv<T> gradient;
  Qkv<const T> qkv;
  Columns<const T> dout, out;
  Columns<float> query_sums;
  const float* logsumexp;
  float score_scale;
};

// out.dout of every query of the heads that share key-value head `group`.
template <class T>
void row_dots(float* row_dot, const AttentionSizes& z, const BackwardArguments<T>& x, std::int64_t first_row,
              std::int64_t group) {
  for (std::int64_t head = group * z.share; head < (group + 1) * z.share; ++head) {
    for (std::int64_t t = 0; t < z.sequence; ++t) {
      const T *gradient = at(x.dout, first_row + t, head * z.depth), *result = at(x.out, first_row + t, head * z.depth);
      Lanes sums = {};
      for (int d = 0; d < z.depth; d += lane_count) {
        sums = multiply_add(load_lanes(gradient + d, z.depth - d), load_lanes(result + d, z.depth - d), sums);
      }
      float dot = 0;
      for (int l = 0; l < lane_count; ++l) dot += sums[l];
      *row_dot++ = dot;
    }
  }
}

// One tile of queries of one head with one tile of keys. `head` counts over the batch.
template <int Stride>
[[gnu::noinline]] void tile_gradients(const BackwardScratch<Stride>& t, const AttentionSizes& z, int queries, int keys,
                                      bool diagonal, const float* row_dot, const DropoutMask<float>* mask, std::int64_t head,
                                      std::int64_t first_query, std::int64_t first_key) {
  constexpr int rows = LaneBlock<Stride>::rows;
  const auto vectors = [=](int i) {
    return diagonal ? (i / score_rows * score_rows + score_rows + lane_count - 1) / lane_count : tile / lane_count;
  };
  scores<Stride>(t.p, t.q, t.k_transposed, queries, z.depth, vectors);
  scores<Stride>(t.ds, t.dout, t.v_transposed, queries, z.depth, vectors);
  for (int i = 0; i < queries; ++i) {
    const int visible = diagonal ? i + 1 : tile;
    const auto drop = [&](float* values) {
      if (mask != nullptr) mask_row(*mask, z, head, first_query + i, first_key, values, visible < keys ? visible : keys);
    };
    score_gradient_row(t.p + i * tile, t.ds + i * tile, visible, vectors(i), t.logsumexp[i], row_dot[i], drop);
  }
  // Queries before a key see nothing of it: on the diagonal the sum over queries starts at the block of rows.
  const auto from = [=](int j) { return diagonal ? j : 0; };
  const auto to = [=](int) { return queries; };
  const auto one = [](int) { return 1.0F; };
  multiply_tile<Stride, 1, tile>(t.dv, keys, t.p, t.dout, true, from, to, one);
  multiply_tile<Stride, 1, tile>(t.dk, keys, t.ds, t.q, true, from, to, one);
  const auto seen = [=](int i) { return diagonal && i + rows < keys ? i + rows : keys; };
  multiply_tile<Stride, tile, 1>(
      t.dq, queries, t.ds, t.k, false, [](int) { return 0; }, seen, one);
}

// One key-value head of one sequence.
template <int Stride, class T>
void backward_head(float* memory, const AttentionSizes& z, const BackwardArguments<T>& x, std::int64_t entry,
                   std::int64_t group, const DropoutMask<float>* mask) {
  const BackwardScratch<Stride> t(memory);
  const std::int64_t first_row = entry * z.sequence, shared_column = group * z.depth;
  const int depth = z.depth;
  row_dots(t.row_dot, z, x, first_row, group);
  for (std::int64_t first_key = 0; first_key < z.sequence; first_key += tile) {
    const int keys = static_cast<int>(z.sequence - first_key < tile ? z.sequence - first_key : tile);
    const std::int64_t key_row = first_row + first_key;
    const T *k = at(x.qkv.k, key_row, shared_column), *v = at(x.qkv.v, key_row, shared_column);
    pack_rows<Stride>(t.k, keys, k, x.qkv.k.stride, keys, depth, x.score_scale);
    pack_transposed<tile>(t.k_transposed, k, x.qkv.k.stride, keys, depth, 1.0F);
    pack_transposed<tile>(t.v_transposed, v, x.qkv.v.stride, keys, depth, 1.0F);
    pack_rows<Stride>(t.dk, tile, k, x.qkv.k.stride, 0, depth, 1.0F);
    pack_rows<Stride>(t.dv, tile, v, x.qkv.v.stride, 0, depth, 1.0F);
    for (std::int64_t head = group * z.share; head < (group + 1) * z.share; ++head) {
      const std::int64_t column = head * z.depth, batch_head = entry * z.heads + head;
      for (std::int64_t first_query = first_key; first_query < z.sequence; first_query += tile) {
        const int queries = static_cast<int>(z.sequence - first_query < tile ? z.sequence - first_query : tile);
        const std::int64_t row = first_row + first_query;
        pack_rows<Stride>(t.q, tile, at(x.qkv.q, row, column), x.qkv.q.stride, queries, depth, x.score_scale);
        pack_rows<Stride>(t.dout, tile, at(x.dout, row, column), x.dout.stride, queries, depth, 1.0F);
        for (int i = 0; i < queries; ++i) t.logsumexp[i] = x.logsumexp[batch_head * z.sequence + first_query + i];
        const bool diagonal = first_query == first_key, first = first_key == 0;
        tile_gradients(t, z, queries, keys, diagonal, t.row_dot + (head - group * z.share) * z.sequence + first_query, mask,
                       batch_head, first_query, first_key);
        float* sums = at(x.query_sums, row, column);
        if (diagonal) {  // the last of the query's tiles of keys
          add_queries<Stride>(at(x.gradient.q, row, column), x.gradient.q.stride, sums, x.query_sums.stride, t.dq, queries,
                              depth, first);
        } else {
          add_queries<Stride>(sums, x.query_sums.stride, sums, x.query_sums.stride, t.dq, queries, depth, first);
        }
      }
    }
    store_rows<Stride>(at(x.gradient.k, key_row, shared_column), x.gradient.k.stride, t.dk, keys, depth);
    store_rows<Stride>(at(x.gradient.v, key_row, shared_column), x.gradient.v.stride, t.dv, keys, depth);
  }
}

}  // namespace

template <class T>
void attention_backward_lanes(const ExecutionSpace& space, const Qkv<T>& qkv_gradient, const ConstMatrix<T>& output_gradient,
                              const Qkv<const T>& qkv, const ConstMatrix<T>& out, const ConstVector<float>& logsumexp,
                              const AttentionShape& shape, const Dropout& dropout, const Columns<float>& query_sums) {
  if constexpr (on_host) {
    const AttentionSizes z(shape, qkv.q.columns);
    const DropoutMask<float> mask(dropout);
    const bool masked = dropout.probability > 0;
    const auto score_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(z.depth)));
    const auto rows_of = [&](const ConstMatrix<T>& matrix) {
      return Columns<const T>{matrix.data(), qkv.q.rows, z.width, z.width};
    };
    const BackwardArguments<T> x = {qkv_gradient,     qkv,        rows_of(output_gradient), rows_of(out), query_sums,
                                    logsumexp.data(), score_scale};
    with_lane_stride(z.depth, [&](auto stride) {
      using Scratch = BackwardScratch<decltype(stride)::value>;
      const auto policy = attention_policy(space, shape.batch * z.groups, (Scratch::elements(z) + line_floats) * sizeof(float));
      Kokkos::parallel_for("minipipe::attention::backward", policy, [=](const TeamMember& team) {
        backward_head<decltype(stride)::value>(lane_scratch(team, Scratch::elements(z)), z, x, team.league_rank() / z.groups,
                                               team.league_rank() % z.groups, masked ? &mask : nullptr);
      });
    });
  }
}

template void attention_backward_lanes<float>(const ExecutionSpace&, const Qkv<float>&, const ConstMatrix<float>&,
                                              const Qkv<const float>&, const ConstMatrix<float>&, const ConstVector<float>&,
                                              const AttentionShape&, const Dropout&, const Columns<float>&);
template void attention_backward_lanes<bf16>(const ExecutionSpace&, const Qkv<bf16>&, const ConstMatrix<bf16>&,
                                             const Qkv<const bf16>&, const ConstMatrix<bf16>&, const ConstVector<float>&,
                                             const AttentionShape&, const Dropout&, const Columns<float>&);

}  // namespace minipipe::core
