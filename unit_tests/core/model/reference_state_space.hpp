#pragma once

#include "core/kernels/selective_scan.hpp"
#include "core/model/model_config.hpp"
#include "unit_tests/core/kernels/bf16_arrays.hpp"

// A state-space branch in plain loops, and values to run it on.
namespace minipipe::core::testing::state_space {

// The input and the parameters of a branch, or their gradients, in the list's order.
enum Part { input, norm, in, conv, conv_bias, dt_bias, a_log, d, gated_norm, out, parts };
using Parts = std::array<Numbers, parts>;

struct Case {
  ModelConfig model;
  TrainShape shape;
};
// Sequences that end within a chunk of the scan; one and two groups of heads.
inline Case example(int groups) {
  Case z;
  z.model.family = "hybrid";
  z.model.width = 8;
  z.model.state_size = 3;
  z.model.state_head_size = 4;
  z.model.state_groups = groups;
  z.model.conv_width = 5 - groups;
  z.shape = {.microbatch_size = 2, .sequence = static_cast<int>(scan_chunk) + 5};
  return z;
}

inline Parts random_parts(const Case& z, unsigned seed) {
  const ModelConfig& m = z.model;
  const int inner = state_width(m), features = conv_features(m), heads = state_heads(m);
  return {random_bf16(z.shape.rows() * m.width, seed),
          random_bf16(m.width, seed + 1, 0.5, 1.5),
          random_bf16((inner + features + heads) * m.width, seed + 2, -0.5, 0.5),
          random_bf16(features * m.conv_width, seed + 3),
          random_bf16(features, seed + 4, -0.5, 0.5),
          random_bf16(heads, seed + 5, -2, 0),
          random_bf16(heads, seed + 6, -1, 1),
          random_bf16(heads, seed + 7),
          random_bf16(inner, seed + 8, 0.5, 1.5),
          random_bf16(m.width * inner, seed + 9, -0.5, 0.5)};
}

inline double silu(double x) { return x / (1 + std::exp(-x)); }

// One row of an RMS norm.
inline Numbers normalise(const double* x, const Numbers& gamma) {
  Numbers y(gamma.size());
  double squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) squares += x[i] * x[i];
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = x[i] * gamma[i] / std::sqrt(squares / static_cast<double>(y.size()) + 1e-5);
  }
  return y;
}
// The product of some rows of a matrix, from `first` on, and a vector.
inline Numbers product(const Numbers& matrix, std::size_t first, std::size_t count, const Numbers& x) {
  Numbers y(count);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t i = 0; i < x.size(); ++i) y[r] += matrix[(first + r) * x.size() + i] * x[i];
  }
  return y;
}

// The branch straight from its formulas, without dropout.
inline Numbers reference(const Case& z, const Parts& p) {
  const ModelConfig& m = z.model;
  const int inner = state_width(m), features = conv_features(m), heads = state_heads(m), share = heads / m.state_groups;
  const int size = m.state_head_size, states = m.state_size;
  Numbers result = p[input];
  for (int sequence = 0; sequence < z.shape.microbatch_size; ++sequence) {
    std::vector<Numbers> xbc;
    Numbers state(inner * states);
    for (int t = 0; t < z.shape.sequence; ++t) {
      const std::size_t row = sequence * z.shape.sequence + t;
      const Numbers normed = normalise(&p[input][row * m.width], p[norm]);
      const Numbers gate = product(p[in], 0, inner, normed), dt = product(p[in], inner + features, heads, normed);
      xbc.push_back(product(p[in], inner, features, normed));
      Numbers convolved = p[conv_bias];
      for (int f = 0; f < features; ++f) {
        for (int k = 0; k < m.conv_width; ++k) {
          const int from = t - m.conv_width + 1 + k;
          if (from >= 0) convolved[f] += p[conv][f * m.conv_width + k] * xbc[from][f];
        }
        convolved[f] = silu(convolved[f]);
      }
      Numbers y(inner);
      for (int i = 0; i < inner; ++i) {
        const int h = i / size;
        const double* b = &convolved[inner + h / share * states];
        const double* c = b + m.state_groups * states;
        const double step = std::log1p(std::exp(dt[h] + p[dt_bias][h])), decay = std::exp(-step * std::exp(p[a_log][h]));
        y[i] = p[d][h] * convolved[i];
        for (int s = 0; s < states; ++s) {
          double& value = state[i * states + s];
          value = decay * value + step * b[s] * convolved[i];
          y[i] += c[s] * value;
        }
        y[i] *= silu(gate[i]);
      }
      const Numbers added = product(p[out], 0, m.width, normalise(y.data(), p[gated_norm]));
      for (int i = 0; i < m.width; ++i) result[row * m.width + i] += added[i];
    }
  }
  return result;
}

}  // namespace minipipe::core::testing::state_space
