#include "core/linalg/gemm.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

template <class T>
class Gemm : public ::testing::Test {};
TYPED_TEST_SUITE(Gemm, Scalars);

TYPED_TEST(Gemm, AgreesWithLoopForAllFormsAndOddSizes) {
  using T = TypeParam;
  for (const auto& [m, n, k] : {std::array<int, 3>{1, 1, 1}, {7, 33, 5}, {64, 48, 32}, {3, 257, 130}}) {
    for (int form = 0; form < 8; ++form) {
      const bool transpose_a = form & 1, transpose_b = form & 2, add = form & 4;
      const Numbers a = random_numbers(m * k, 1), b = random_numbers(k * n, 2);
      const Numbers old = add ? random_numbers(m * n, 3) : Numbers(m * n, std::nan(""));
      const Array<T> a_array(a), b_array(b), c_array(old);
      gemm<T>({}, transpose_a, transpose_b, T(0.5), a_array.matrix(transpose_a ? k : m, transpose_a ? m : k),
              b_array.matrix(transpose_b ? n : k, transpose_b ? k : n), add ? T(2) : T(0), c_array.matrix(m, n));
      Numbers expected(m * n);
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double sum = 0;
          for (int p = 0; p < k; ++p) {
            sum += a[transpose_a ? p * m + i : i * k + p] * b[transpose_b ? j * k + p : p * n + j];
          }
          expected[i * n + j] = 0.5 * sum + (add ? 2 * old[i * n + j] : 0);
        }
      }
      // k products of magnitude below 1, each sum rounded once.
      expect_near(c_array.get(), expected, rounding<T> * (k + 4) * (0.5 * k + 2));
    }
  }
}

TYPED_TEST(Gemm, RefusesShapesThatDoNotFit) {
  using T = TypeParam;
  const Array<T> a(Numbers(6)), b(Numbers(6)), c(Numbers(4));
  EXPECT_THROW(gemm<T>({}, false, false, T(1), a.matrix(2, 3), b.matrix(2, 3), T(0), c.matrix(2, 2)), RunError);
  EXPECT_NO_THROW(gemm<T>({}, false, true, T(1), a.matrix(2, 3), b.matrix(2, 3), T(0), c.matrix(2, 2)));
}

TYPED_TEST(Gemm, RateIsAPlausibleNumber) {
  const double rate = measure_gemm_rate<TypeParam>({}, 64, 64, 64);
  EXPECT_GT(rate, 1e-3);
  EXPECT_LT(rate, 1e6);
}

}  // namespace minipipe::core::testing
