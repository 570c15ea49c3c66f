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

// A symmetric tridiagonal matrix; off[i] stands between i and i + 1.
struct Tridiagonal {
  std::vector<double> diagonal, off;
};

// One with the same eigenvalues as a symmetric matrix, by Householder's reflections (Golub and Van Loan, Matrix Computations,
// 8.3.1): 4/3 n^3 products, so that masks of a thousand replicas take no more than a second.
Tridiagonal tridiagonal(Matrix a) {
  const int n = a.size;
  Tridiagonal result;
  std::vector<double> v(static_cast<std::size_t>(n)), w(static_cast<std::size_t>(n));
  for (int k = 0; k < n; ++k) {
    result.diagonal.push_back(a(k, k));
    if (k + 1 == n) break;
    double squares = 0.0;
    for (int i = k + 2; i < n; ++i) squares += a(k, i) * a(k, i);
    const double first = a(k, k + 1);
    if (squares == 0.0) {
      result.off.push_back(first);
      continue;
    }
    const double norm = std::sqrt(first * first + squares);
    const double reflected = first > 0.0 ? -norm : norm;
    result.off.push_back(reflected);
    // The rest becomes (1 - beta v v^T) a (1 - beta v v^T) = a - v w^T - w v^T.
    for (int i = k + 1; i < n; ++i) v[i] = a(k, i);
    v[k + 1] -= reflected;
    const double beta = 2.0 / (v[k + 1] * v[k + 1] + squares);
    double product = 0.0;
    for (int i = k + 1; i < n; ++i) {
      double sum = 0.0;
      for (int j = k + 1; j < n; ++j) sum += a(i, j) * v[j];
      w[i] = beta * sum;
      product += w[i] * v[i];
    }
    for (int i = k + 1; i < n; ++i) w[i] -= 0.5 * beta * product * v[i];
    for (int i = k + 1; i < n; ++i) {
      const double vi = v[i], wi = w[i];
      for (int j = k + 1; j < n; ++j) a(i, j) -= vi * w[j] + wi * v[j];
    }
  }
  return result;
}

// Eigenvalues above x: those positive in a Sturm sequence (8.4.1).
int above(const Tridiagonal& a, double x) {
  int count = 0;
  double pivot = 1.0;
  for (std::size_t i = 0; i < a.diagonal.size(); ++i) {
    const double off = i == 0 ? 0.0 : a.off[i - 1];
    pivot = a.diagonal[i] - x - off * off / pivot;
    if (pivot == 0.0) pivot = -1e-300;
    count += pivot > 0.0 ? 1 : 0;
  }
  return count;
}

// The second largest eigenvalue, if all are in [0, 1], by bisection.
double second_eigenvalue(const Tridiagonal& a) {
  double low = 0.0, high = 1.0;
  while (high - low > 1e-15) {
    const double middle = 0.5 * (low + high);
    (above(a, middle) >= 2 ? low : high) = middle;
  }
  return low;
}

// sum over lists l of 1 / (size of l * sqrt(degree of v * degree of w)), for v and w in l.
Matrix mixing(const std::vector<std::vector<int>>& lists, const std::vector<double>& degrees) {
  Matrix product(static_cast<int>(degrees.size()));
  for (const std::vector<int>& list : lists) {
    for (const int v : list) {
      for (const int w : list) {
        product(v, w) += 1.0 / (static_cast<double>(list.size()) *
                                std::sqrt(degrees[static_cast<std::size_t>(v)] * degrees[static_cast<std::size_t>(w)]));
      }
    }
  }
  return product;
}

std::vector<double> sizes(const std::vector<std::vector<int>>& lists) {
  std::vector<double> result;
  for (const std::vector<int>& list : lists) result.push_back(static_cast<double>(list.size()));
  return result;
}

}  // namespace

double spectral_gap(const Masks& masks) {
  if (!connected(masks)) return 0.0;
  if (masks.workers == 1 || masks.units() == 1) return 1.0;
  std::vector<std::vector<int>> units(static_cast<std::size_t>(masks.workers));  // by worker
  for (int unit = 0; unit < masks.units(); ++unit) {
    for (const int worker : masks.holders[static_cast<std::size_t>(unit)])
      units[static_cast<std::size_t>(worker)].push_back(unit);
  }
  // P is similar to the symmetric B B^T, B[w][u] = 1/sqrt(units of w * holders of u) where w holds u: its eigenvalues are the
  // squared singular values of the normalised biadjacency matrix B. Those of B^T B are the same but for zeros: the smaller one
  // does.
  const bool by_unit = masks.units() < masks.workers;
  Matrix product = by_unit ? mixing(units, sizes(masks.holders)) : mixing(masks.holders, sizes(units));
  return std::clamp(1.0 - second_eigenvalue(tridiagonal(std::move(product))), 0.0, 1.0);
}

}  // namespace minipipe::schedules
