
#include "core/linalg/gemm.hpp"
#include "core/linalg/gemm_bf16.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/bf16_arrays.hpp"

namespace minipipe::core::testing {

TEST(Bf16, EveryValueSurvivesAsFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    bf16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const float wide = value;
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(bf16(wide)))) << bits;
    } else {
      EXPECT_EQ(bf16(wide).bits, bits);
    }
  }
}

TEST(Bf16, RoundsToTheNearestAndTiesToEven) {
  const auto rounded = [](double value) { return static_cast<double>(static_cast<float>(bf16(static_cast<float>(value)))); };
  const double unit = 0x1p-7;  // between neighbours of 1
  EXPECT_EQ(rounded(1 + 0.49 * unit), 1);
  EXPECT_EQ(rounded(1 + 0.5 * unit), 1);
  EXPECT_EQ(rounded(1 + 0.51 * unit), 1 + unit);
  EXPECT_EQ(rounded(1 + 1.5 * unit), 1 + 2 * unit);
  EXPECT_EQ(rounded(-1 - 1.5 * unit), -1 - 2 * unit);
  EXPECT_EQ(rounded(2 - 0.25 * unit), 2) << "carries into the exponent";
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::signaling_NaN())));
  for (const double value : random_numbers(1000, 1, -1e3, 1e3)) {
    EXPECT_LE(std::abs(rounded(value) - value), bf16_rounding * std::abs(value));
  }
}

namespace {

// All forms and odd sizes of product(...), which writes c.
template <class Out, class Multiply>
void check_products(const Multiply& multiply) {
  for (const auto& [m, n, k] :
       {std::array<int, 3>{1, 1, 1}, {7, 33, 5}, {64, 48, 32}, {3, 257, 130}, {129, 65, 200}, {1100, 17, 9}}) {
    for (int form = 0; form < 8; ++form) {
      SCOPED_TRACE(::testing::Message() << m << ' ' << n << ' ' << k << " form " << form);
      const bool transpose_a = form & 1, transpose_b = form & 2, add = form & 4;
      const Numbers a = random_bf16(m * k, 1), b = random_bf16(k * n, 2);
      const Numbers old = add ? random_bf16(m * n, 3) : Numbers(m * n, std::nan(""));
      const Array<bf16> a_array(a), b_array(b);
      const Array<Out> c_array(old);
      multiply(transpose_a, transpose_b, a_array.matrix(transpose_a ? k : m, transpose_a ? m : k),
               b_array.matrix(transpose_b ? n : k, transpose_b ? k : n), add ? 1.0F : 0.0F, c_array.matrix(m, n));
      Numbers expected(m * n);
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          double sum = 0;
          for (int p = 0; p < k; ++p) {
            sum += a[transpose_a ? p * m + i : i * k + p] * b[transpose_b ? j * k + p : p * n + j];
          }
          expected[i * n + j] = sum + (add ? old[i * n + j] : 0);
        }
      }
      // k exact products of magnitude at most 1, each sum rounded once to float.
      const double absolute = rounding<float> * (k + 2) * (k + 2);
      if constexpr (std::is_same_v<Out, float>) {
        expect_near(c_array.get(), expected, absolute);
      } else {
        expect_rounded(c_array.get(), expected, absolute);
      }
    }
  }
}

template <class Out>
void gemm_as_found(bool transpose_a, bool transpose_b, ConstMatrix<bf16> a, ConstMatrix<bf16> b, float beta, Matrix<Out> c) {
  gemm<bf16, Out>({}, transpose_a, transpose_b, 1, a, b, beta, c);
}

template <class Out>
void gemm_converted(bool transpose_a, bool transpose_b, ConstMatrix<bf16> a, ConstMatrix<bf16> b, float beta, Matrix<Out> c) {
  converted_gemm<Out>({}, transpose_a, transpose_b, 1, a, b, beta, c);
}

}  // namespace

TEST(Bf16Gemm, IsTheExactProductRoundedOnce) { check_products<bf16>(gemm_as_found<bf16>); }
TEST(Bf16Gemm, AccumulatesIntoFloat) { check_products<float>(gemm_as_found<float>); }
TEST(Bf16Gemm, OfConvertedCopiesIsTheExactProductRoundedOnce) { check_products<bf16>(gemm_converted<bf16>); }
TEST(Bf16Gemm, OfConvertedCopiesAccumulatesIntoFloat) { check_products<float>(gemm_converted<float>); }

// Long sums in bf16 would stand still at 256: there is room for no smaller step.
TEST(Bf16Gemm, SumsAreFormedInFloat) {
  const int k = 1024;
  const Array<bf16> ones(Numbers(k, 1.0)), sum(1);
  gemm<bf16>({}, false, true, 1, ones.matrix(1, k), ones.matrix(1, k), 0, sum.matrix(1, 1));
  EXPECT_EQ(sum.get()[0], k);
}

// So long that they are formed in parts: whole numbers, whose sums are exact.
TEST(Bf16Gemm, LongSumsMissNothing) {
  const int m = 3, n = 5, k = 16391;
  Numbers a(m * k), b(k * n), expected(m * n);
  for (int i = 0; i < m * k; ++i) a[i] = i % 5 - 1;
  for (int i = 0; i < k * n; ++i) b[i] = i % 7 - 2;
  for (int i = 0; i < m * n; ++i) {
    for (int p = 0; p < k; ++p) expected[i] += a[i / n * k + p] * b[p * n + i % n];
  }
  const Array<bf16> left(a), right(b), rounded(Numbers(m * n, std::nan("")));
  const Array<float> sums(Numbers(m * n, 7.0));
  gemm<bf16, float>({}, false, false, 1, left.matrix(m, k), right.matrix(k, n), 1, sums.matrix(m, n));
  gemm<bf16>({}, false, false, 1, left.matrix(m, k), right.matrix(k, n), 0, rounded.matrix(m, n));
  for (int i = 0; i < m * n; ++i) {
    EXPECT_EQ(sums.get()[i], expected[i] + 7) << i;
    EXPECT_EQ(rounded.get()[i], static_cast<float>(bf16(static_cast<float>(expected[i])))) << i;
  }
}

// The same numbers give the same result wherever they lie: partitions of a model must not show.
TEST(Bf16Gemm, DoesNotDependOnAlignment) {
  const int m = 17, n = 40, k = 72, shift = 32;
  const Numbers a = random_bf16(m * k, 1), b = random_bf16(n * k, 2);
  Numbers moved(shift, 0.0);
  moved.insert(moved.end(), a.begin(), a.end());
  const Array<bf16> plain(a), later(moved), weights(b), first(m * n), second(m * n);
  gemm<bf16>({}, false, true, 1, plain.matrix(m, k), weights.matrix(n, k), 0, first.matrix(m, n));
  gemm<bf16>({}, false, true, 1, slice_matrix<bf16>(later.vector(), shift, m, k), weights.matrix(n, k), 0, second.matrix(m, n));
  EXPECT_EQ(first.get(), second.get());
}

TEST(Bf16Gemm, OtherFactorsAndRefusedShapes) {
  const Array<bf16> a(Numbers{1, 2, 3, 4, 5, 6}), b(Numbers{1, 0, 0, 1, 1, 1}), c(Numbers{1, 1, 1, 1});
  gemm<bf16>({}, false, false, 0.5, a.matrix(2, 3), b.matrix(3, 2), 2, c.matrix(2, 2));
  EXPECT_EQ(c.get(), (Numbers{4, 4.5, 7, 7.5}));
  EXPECT_THROW(gemm<bf16>({}, false, false, 1, a.matrix(2, 3), b.matrix(2, 3), 0, c.matrix(2, 2)), RunError);
}

TEST(Bf16Gemm, RateIsAPlausibleNumber) {
  const double rate = measure_gemm_rate<bf16>({}, 64, 64, 64);
  EXPECT_GT(rate, 1e-3);
  EXPECT_LT(rate, 1e6);
}

}  // namespace minipipe::core::testing
