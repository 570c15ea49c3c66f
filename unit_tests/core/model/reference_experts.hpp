#pragma once

#include <numeric>

#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::test {

using testing::Array;
using testing::dot;
using testing::Numbers;
using Integers = std::vector<std::int32_t>;

struct ExpertsCase {
  int batch = 2, sequence = 7, width = 6, hidden = 5, experts = 4, choices = 2;
  double capacity = 0, dropout = 0, balance_scale = 0.7;

  int rows() const { return batch * sequence; }
  // The parameters in one array: norm, router, then each expert's gate, up, down.
  int router() const { return width; }
  int expert(int e) const { return width + experts * width + 3 * e * hidden * width; }
  int parameters() const { return expert(experts); }
};

// The layer by plain loops in double.
struct ReferenceExperts {
  Numbers out;
  double balance = 0;  // not multiplied by its scale
  Integers chosen, counts;
  int dropped = 0;

  // `mask` [R, C]: what the dropout multiplies with.
  ReferenceExperts(const ExpertsCase& z, const Numbers& x, const Numbers& p, const Numbers& mask) : out(x), counts(z.experts) {
    const int most = z.capacity > 0 ? static_cast<int>(std::ceil(z.capacity * z.rows() * z.choices / z.experts)) : z.rows();
    Numbers mean(z.experts);
    for (int r = 0; r < z.rows(); ++r) {
      const Numbers n = norm(z, &x[r * z.width], p);
      Numbers logits(z.experts), probabilities(z.experts);
      for (int e = 0; e < z.experts; ++e) logits[e] = along(z.width, &p[z.router() + e * z.width], n.data());
      for (int e = 0; e < z.experts; ++e) probabilities[e] = std::exp(logits[e]);
      const double total = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
      for (int e = 0; e < z.experts; ++e) mean[e] += probabilities[e] / total / z.rows();

      Integers order(z.experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logits[a] > logits[b]; });
      order.resize(z.choices);
      double chosen_total = 0;
      for (const int e : order) chosen_total += probabilities[e];
      for (const int e : order) {
        chosen.push_back(e);
        if (counts[e]++ >= most) {
          ++dropped;
          continue;
        }
        const Numbers y = expert(z, &p[z.expert(e)], n);
        for (int c = 0; c < z.width; ++c) {
          out[r * z.width + c] += mask[r * z.width + c] * probabilities[e] / chosen_total * y[c];
        }
      }
    }
    for (int e = 0; e < z.experts; ++e) balance += z.experts * mean[e] * counts[e] / (z.rows() * z.choices);
  }

 private:
  static double along(int count, const double* a, const double* b) { return std::inner_product(a, a + count, b, 0.0); }

  static Numbers norm(const ExpertsCase& z, const double* x, const Numbers& weight) {
    Numbers n(z.width);
    const double scale = 1 / std::sqrt(along(z.width, x, x) / z.width + 1e-5);
    for (int c = 0; c < z.width; ++c) n[c] = x[c] * scale * weight[c];
    return n;
  }

  static Numbers expert(const ExpertsCase& z, const double* gate, const Numbers& n) {
    const double *up = gate + z.hidden * z.width, *down = up + z.hidden * z.width;
    Numbers h(z.hidden), y(z.width);
    for (int f = 0; f < z.hidden; ++f) {
      const double g = along(z.width, gate + f * z.width, n.data());
      h[f] = g / (1 + std::exp(-g)) * along(z.width, up + f * z.width, n.data());
    }
    for (int c = 0; c < z.width; ++c) y[c] = along(z.hidden, down + c * z.hidden, h.data());
    return y;
  }
};

}  // namespace minipipe::core::test
