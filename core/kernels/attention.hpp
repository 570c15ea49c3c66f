#pragma once

#include <type_traits>

#include "core/kernels/dropout.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Causal self-attention of `heads` heads with scores q.k/sqrt(D), D features per head, by tiles with an online softmax (Dao et
// al., arXiv 2205.14135): no T x T array is kept. With fewer key-value heads, adjacent query heads share one: query head h uses
// key-value head h / (heads / kv_heads) (grouped-query attention, Ainslie et al., arXiv 2305.13245).
struct AttentionShape {
  std::int64_t batch = 0;     // B
  std::int64_t sequence = 0;  // T
  std::int64_t heads = 0;     // H, divides C
  std::int64_t kv_heads = 0;  // G, divides H; 0: as many as heads

  std::int64_t groups() const { return kv_heads > 0 ? kv_heads : heads; }
};

// Some adjacent columns of a row-major array: `stride` elements from row to row.
template <class T>
struct Columns {
  T* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
};
template <class T>
Columns<T> columns_of(const Matrix<T>& matrix, std::int64_t first, std::int64_t count) {
  const auto stride = static_cast<std::int64_t>(matrix.extent(1));
  return {matrix.data() + first, static_cast<std::int64_t>(matrix.extent(0)), count, stride};
}
template <class T>
Columns<T> columns_of(const Matrix<T>& matrix) {
  return columns_of(matrix, 0, static_cast<std::int64_t>(matrix.extent(1)));
}

// Query [B*T, H D], key and value [B*T, G D], or their gradients; row b*T + t.
template <class T>
struct Qkv {
  Columns<T> q, k, v;

  template <class U>
  requires std::is_same_v<U, const T>
  operator Qkv<U>() const {
    const auto read_only = [](const Columns<T>& c) { return Columns<U>{c.data, c.rows, c.columns, c.stride}; };
    return {read_only(q), read_only(k), read_only(v)};
  }
};

// The parts of qkv [B*T, 3C], as the fused projection of GPT-2 leaves them.
template <class T>
Qkv<T> split_qkv(const Matrix<T>& qkv) {
  const auto width = static_cast<std::int64_t>(qkv.extent(1)) / 3;
  return {columns_of(qkv, 0, width), columns_of(qkv, width, width), columns_of(qkv, 2 * width, width)};
}

// out [B*T, C]; logsumexp [B*H*T], index (b*H + h)*T + t, is what the backward needs beside qkv and out.
// `dropout` acts on the probabilities. Throws RunError if the shapes do not fit.
template <class T>
void attention_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> logsumexp, const Qkv<const T>& qkv,
                       const AttentionShape& shape, const Dropout& dropout = {});

// Writes (does not add) the gradients of q, k and v. Probabilities are recomputed tile by tile; those of heads that share a key
// are added in ascending order. `query_sums` [B*T, C]: where the gradients of q are added up if T is narrower than Compute<T>;
// otherwise it is not used.
template <class T>
void attention_backward(const ExecutionSpace& space, const Qkv<T>& qkv_gradient, ConstMatrix<T> output_gradient,
                        const Qkv<const T>& qkv, ConstMatrix<T> out, ConstVector<Compute<T>> logsumexp,
                        const AttentionShape& shape, const Dropout& dropout = {}, Matrix<Compute<T>> query_sums = {});

}  // namespace minipipe::core
