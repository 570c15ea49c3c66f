#include "core/optim/muon.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

namespace {

using Index = std::int64_t;

// Plain loops, row-major.
Numbers transposed(const Numbers& x, Index rows, Index columns) {
  Numbers y(x.size());
  for (Index i = 0; i < rows; ++i) {
    for (Index j = 0; j < columns; ++j) y[j * rows + i] = x[i * columns + j];
  }
  return y;
}

Numbers product(const Numbers& a, const Numbers& b, Index m, Index k, Index n) {
  Numbers c(m * n);
  for (Index i = 0; i < m; ++i) {
    for (Index p = 0; p < k; ++p) {
      for (Index j = 0; j < n; ++j) c[i * n + j] += a[i * k + p] * b[p * n + j];
    }
  }
  return c;
}

// a x + b (x x^T) x + c (x x^T)^2 x, straight from the formula, on the rows' side always.
Numbers newton_schulz(Numbers x, Index rows, Index columns, int steps) {
  double norm = 0;
  for (const double value : x) norm += value * value;
  for (double& value : x) value /= std::sqrt(norm) + 1e-7;
  for (int step = 0; step < steps; ++step) {
    const Numbers gram = product(x, transposed(x, rows, columns), rows, columns, rows);
    const Numbers third = product(gram, x, rows, rows, columns);
    const Numbers fifth = product(gram, third, rows, rows, columns);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 3.4445 * x[i] - 4.7750 * third[i] + 2.0315 * fifth[i];
  }
  return x;
}

template <class T>
Numbers orthogonalised(const Numbers& x, Index rows, Index columns, int steps) {
  const std::vector<MuonMatrix> matrices = {{0, rows, columns}};
  const MuonMemory<T> memory(matrices);
  EXPECT_EQ(memory.bytes(), muon_memory_bytes<T>(matrices));
  const MuonWorkspace<T> workspace = memory.workspace();
  const Array<T> values(x);
  Kokkos::deep_copy(slice<T>(workspace.matrix, 0, rows * columns), values.vector());
  const Array<T> result(Numbers(x.size()));
  Kokkos::deep_copy(result.vector(), flatten(orthogonalise<T>({}, rows, columns, steps, workspace)));
  return result.get();
}

// Smallest and largest eigenvalue of a symmetric matrix by Jacobi rotations.
std::pair<double, double> eigenvalues(Numbers a, Index n) {
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (Index p = 0; p < n; ++p) {
      for (Index q = p + 1; q < n; ++q) {
        if (std::abs(a[p * n + q]) < 1e-14) continue;
        const double theta = 0.5 * std::atan2(2 * a[p * n + q], a[q * n + q] - a[p * n + p]);
        const double c = std::cos(theta), s = std::sin(theta);
        for (Index k = 0; k < n; ++k) {
          const double x = a[k * n + p], y = a[k * n + q];
          a[k * n + p] = c * x - s * y;
          a[k * n + q] = s * x + c * y;
        }
        for (Index k = 0; k < n; ++k) {
          const double x = a[p * n + k], y = a[q * n + k];
          a[p * n + k] = c * x - s * y;
          a[q * n + k] = s * x + c * y;
        }
      }
    }
  }
  double low = a[0], high = a[0];
  for (Index i = 0; i < n; ++i) {
    low = std::min(low, a[i * n + i]);
    high = std::max(high, a[i * n + i]);
  }
  return {low, high};
}

}  // namespace

template <class T>
class Muon : public ::testing::Test {};
TYPED_TEST_SUITE(Muon, Scalars);

TYPED_TEST(Muon, NewtonSchulzAgreesWithTheFormula) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::pair<Index, Index>{1, 1}, {24, 24}, {16, 64}, {64, 16}, {33, 7}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
    const Numbers x = random_numbers(rows * columns, 3);
    const Numbers result = orthogonalised<T>(x, rows, columns, 5);
    const Numbers expected = newton_schulz(x, rows, columns, 5);
    // Slopes of the quintic up to 3.4445 amplify rounding errors at each of the five iterations.
    expect_near(result, expected, 20 * 500 * rounding<T>);
  }
}

// The band in which the coefficients leave singular values that start above some 1e-3 of the norm.
TYPED_TEST(Muon, NewtonSchulzIsNearlyOrthogonal) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::pair<Index, Index>{32, 8}, {8, 32}, {12, 48}, {48, 12}}) {
    SCOPED_TRACE(::testing::Message() << rows << " x " << columns);
    const Numbers u = orthogonalised<T>(random_numbers(rows * columns, 5), rows, columns, 5);
    const Numbers ut = transposed(u, rows, columns);
    const bool tall = rows > columns;
    const Index side = std::min(rows, columns);
    const auto [low, high] =
        eigenvalues(tall ? product(ut, u, columns, rows, columns) : product(u, ut, rows, columns, rows), side);
    EXPECT_GT(std::sqrt(low), 0.65);
    EXPECT_LT(std::sqrt(high), 1.25);
  }
}

TYPED_TEST(Muon, ZeroStaysZero) {
  using T = TypeParam;
  EXPECT_EQ(orthogonalised<T>(Numbers(32), 8, 4, 5), Numbers(32));
}

TYPED_TEST(Muon, AgreesWithLoopOverSeveralSteps) {
  using T = TypeParam;
  // 16 elements between the matrices belong to nobody.
  const std::vector<MuonMatrix> matrices = {{0, 16, 8, true}, {144, 8, 16, false}, {272, 12, 12, true}};
  const std::size_t count = 416;
  for (const bool nesterov : {true, false}) {
    const MuonOptions options{0.02, 0.9, nesterov, 5};
    const double rate = 0.05, decay = 0.1, scale = 0.5;
    const MuonMemory<T> memory(matrices);
    Numbers p = random_numbers(count, 1), m(count);
    const Array<T> parameters(p), moment(m);
    for (int step = 0; step < 3; ++step) {
      const Numbers g = random_numbers(count, 20 + step);
      const Array<T> gradients(g);
      muon_update<T>({}, parameters.vector(), moment.vector(), gradients.vector(), matrices, options, decay, rate, scale,
                     memory.workspace());
      EXPECT_EQ(gradients.get(), g);
      for (const MuonMatrix& matrix : matrices) {
        const Index size = matrix.rows * matrix.columns;
        Numbers u(size);
        for (Index i = 0; i < size; ++i) {
          double& moved = m[matrix.offset + i];
          const double gradient = scale * g[matrix.offset + i];
          moved = 0.9 * moved + 0.1 * gradient;
          u[i] = nesterov ? 0.9 * moved + 0.1 * gradient : moved;
        }
        u = newton_schulz(u, matrix.rows, matrix.columns, 5);
        const double factor = std::sqrt(std::max(1.0, static_cast<double>(matrix.rows) / matrix.columns));
        for (Index i = 0; i < size; ++i) {
          double& value = p[matrix.offset + i];
          value -= rate * (factor * u[i] + (matrix.decay ? decay * value : 0));
        }
      }
    }
    expect_near(parameters.get(), p, 3 * rounding<T> * (rate * 2 * 20 * 500 + 4));
    expect_near(moment.get(), m, 20 * rounding<T>);
  }
}

TYPED_TEST(Muon, RefusesAMatrixLargerThanItsWorkspace) {
  using T = TypeParam;
  const std::vector<MuonMatrix> small = {{0, 4, 4}}, large = {{0, 8, 8}};
  const MuonMemory<T> memory(small);
  const Array<T> p(Numbers(64)), m(Numbers(64)), g(Numbers(64));
  EXPECT_THROW(muon_update<T>({}, p.vector(), m.vector(), g.vector(), large, {}, 0, 0.1, 1, memory.workspace()), RunError);
  EXPECT_EQ(muon_memory_bytes<T>({}), 0u);
}

}  // namespace minipipe::core::testing
