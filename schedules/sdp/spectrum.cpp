#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "schedules/sdp/masks.hpp"

namespace minipipe::schedules {
namespace {

// A square matrix, row by row.
struct Matrix {
  explicit Matrix(int rows) : size(rows), values(static_cast<std::size_t>(rows) * static_cast<std::size_t>(rows), 0.0) {}
  double& operator()(int i, int j) {
    return values[static_cast<std::size_t>(i) * static_cast<std::size_t>(size) + static_cast<std::size_t>(j)];
  }
  int size;
  std::vector<double> values;
};

// Rotates rows and columns p and q so that element (p, q) becomes 0.
void rotate(Matrix& a, int p, int q) {
  if (a(p, q) == 0.0) return;
  const double theta = (a(q, q) - a(p, p)) / (2.0 * a(p, q));
  const double t = (theta >= 0.0 ? 1.0 : -1.0) / (std::fabs(theta) + std::sqrt(theta * theta + 1.0));
  const double c = 1.0 / std::sqrt(t * t + 1.0);
  const double s = t * c;
  for (int k = 0; k < a.size; ++k) {
    const double kp = a(k, p);
    const double kq = a(k, q);
    a(k, p) = c * kp - s * kq;
    a(k, q) = s * kp + c * kq;
  }
  for (int k = 0; k < a.size; ++k) {
    const double pk = a(p, k);
    const double qk = a(q, k);
    a(p, k) = c * pk - s * qk;
    a(q, k) = s * pk + c * qk;
  }
}

// Eigenvalues of a symmetric matrix, descending: cyclic Jacobi rotations (Golub and Van Loan, Matrix Computations, 8.5).
std::vector<double> eigenvalues(Matrix a) {
  constexpr int sweeps = 50;
  for (int sweep = 0; sweep < sweeps; ++sweep) {
    double off_diagonal = 0.0;
    for (int p = 0; p < a.size; ++p) {
      for (int q = p + 1; q < a.size; ++q) off_diagonal += a(p, q) * a(p, q);
    }
    if (off_diagonal < 1e-28) break;
    for (int p = 0; p < a.size; ++p) {
      for (int q = p + 1; q < a.size; ++q) rotate(a, p, q);
    }
  }
  std::vector<double> values;
  for (int i = 0; i < a.size; ++i) values.push_back(a(i, i));
  std::sort(values.rbegin(), values.rend());
  return values;
}

}  // namespace

double spectral_gap(const Masks& masks) {
  if (!connected(masks)) return 0.0;
  if (masks.workers == 1) return 1.0;
  std::vector<double> units(static_cast<std::size_t>(masks.workers), 0.0);
  for (const std::vector<int>& holders : masks.holders) {
    for (const int worker : holders) units[static_cast<std::size_t>(worker)] += 1.0;
  }
  // P is similar to the symmetric B B^T, B[w][u] = 1/sqrt(units of w * holders of u) where w holds u: its eigenvalues are the
  // squared singular values of the normalised biadjacency matrix B.
  Matrix product(masks.workers);
  for (const std::vector<int>& holders : masks.holders) {
    for (const int v : holders) {
      for (const int w : holders) {
        product(v, w) += 1.0 / (static_cast<double>(holders.size()) *
                                std::sqrt(units[static_cast<std::size_t>(v)] * units[static_cast<std::size_t>(w)]));
      }
    }
  }
  return std::clamp(1.0 - eigenvalues(std::move(product))[1], 0.0, 1.0);
}

}  // namespace minipipe::schedules
