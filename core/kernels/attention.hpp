#pragma once

#include "core/kernels/dropout.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Causal self-attention of `heads` heads with scores q.k/sqrt(C/heads), by tiles with an online softmax (Dao et al.,
// arXiv 2205.14135): no T x T array is kept. Row b*T + t of qkv [B*T, 3C] holds query, key and value of all heads, as the fused
// projection of GPT-2 leaves them.
struct AttentionShape {
  std::int64_t batch = 0;     // B
  std::int64_t sequence = 0;  // T
  std::int64_t heads = 0;     // H, divides C
};

// out [B*T, C]; logsumexp [B*H*T], index (b*H + h)*T + t, is what the backward needs beside qkv and out.
// `dropout` acts on the probabilities. Throws RunError if the shapes do not fit.
template <class T>
void attention_forward(const ExecutionSpace& space, Matrix<T> out, Vector<T> logsumexp, ConstMatrix<T> qkv,
                       const AttentionShape& shape, const Dropout& dropout = {});

// Writes (does not add) qkv_gradient [B*T, 3C]. Probabilities are recomputed tile by tile.
template <class T>
void attention_backward(const ExecutionSpace& space, Matrix<T> qkv_gradient, ConstMatrix<T> output_gradient, ConstMatrix<T> qkv,
                        ConstMatrix<T> out, ConstVector<T> logsumexp, const AttentionShape& shape, const Dropout& dropout = {});

}  // namespace minipipe::core
