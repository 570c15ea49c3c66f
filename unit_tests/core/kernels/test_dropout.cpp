#include "core/kernels/dropout.hpp"
#include "core/kernels/initialise.hpp"
#include "core/kernels/philox.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

TEST(Philox, GivesThePublishedKnownAnswers) {
  // Known-answer vectors of Random123 (kat_vectors, philox4x32-10).
  const auto zero = philox(0, 0, 0);
  EXPECT_EQ(zero.v[0], 0x6627e8d5U);
  EXPECT_EQ(zero.v[3], 0x9b00dbd8U);
  const auto ones = philox(~0ULL, ~0ULL, ~0ULL);
  EXPECT_EQ(ones.v[0], 0x408f276dU);
  EXPECT_EQ(ones.v[3], 0x6d5451fdU);
}

template <class T>
class DropoutTest : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutTest, Scalars);

TYPED_TEST(DropoutTest, KeepsTheRightShareAndScalesIt) {
  using T = TypeParam;
  const std::size_t count = 40001;
  const double p = 0.3;
  const Array<T> ones(Numbers(count, 1.0)), out(count);
  dropout<T>({}, out.vector(), ones.vector(), {p, 17, 3, 5});
  std::size_t kept = 0;
  for (const T value : out.exact()) {
    ASSERT_TRUE(value == T(0) || value == static_cast<T>(1 / (1 - p)));
    kept += value != T(0);
  }
  // Five standard deviations of a binomial.
  EXPECT_NEAR(static_cast<double>(kept), count * (1 - p), 5 * std::sqrt(count * p * (1 - p)));
}

TYPED_TEST(DropoutTest, BackwardSeesTheMaskOfTheForwardAndOtherPlacesSeeOthers) {
  using T = TypeParam;
  const std::size_t count = 1003;
  const Array<T> ones(Numbers(count, 1.0)), forward(count), again(Numbers(count, 1.0));
  const Dropout here{0.5, 17, 3, 5};
  dropout<T>({}, forward.vector(), ones.vector(), here);
  dropout<T>({}, again.vector(), again.vector(), here);
  EXPECT_EQ(forward.exact(), again.exact());
  for (const Dropout& other : {Dropout{0.5, 18, 3, 5}, Dropout{0.5, 17, 4, 5}, Dropout{0.5, 17, 3, 6}}) {
    const Array<T> out(count);
    dropout<T>({}, out.vector(), ones.vector(), other);
    const std::vector<T> mask = forward.exact(), other_mask = out.exact();
    std::size_t differ = 0;
    for (std::size_t i = 0; i < count; ++i) {
      differ += mask[i] != other_mask[i];
    }
    // Independent masks of probability 1/2 differ in half the places; five standard deviations.
    EXPECT_NEAR(static_cast<double>(differ), count / 2.0, 2.5 * std::sqrt(count));
  }
}

// Element i is dropped by word i % 4 of counter i / 4, however the words are formed; the counts end inside blocks of all sizes.
TYPED_TEST(DropoutTest, DropsWhatTheGeneratorSays) {
  using T = TypeParam;
  const Dropout options{0.4, 0x123456789abcdefULL, 3, 0xfffffff1U};
  const std::uint64_t place = options.layer | static_cast<std::uint64_t>(options.microbatch) << 32;
  for (const std::size_t count : {1UL, 130UL, 4096UL + 128 + 21}) {
    const Array<T> ones(Numbers(count, 1.0)), out(count);
    dropout<T>({}, out.vector(), ones.vector(), options);
    const std::vector<T> factors = out.exact();
    for (std::size_t i = 0; i < count; ++i) {
      const bool kept = philox(options.seed, i / 4, place).v[i % 4] >= static_cast<std::uint32_t>(0.4 * 4294967296.0);
      ASSERT_EQ(factors[i] != T(0), kept) << i << " of " << count;
    }
  }
}

TYPED_TEST(DropoutTest, ProbabilityZeroCopies) {
  using T = TypeParam;
  const Numbers x = random_numbers(9, 1);
  const Array<T> input(x), out(9);
  dropout<T>({}, out.vector(), input.vector(), {});
  EXPECT_EQ(out.get(), x);
}

TYPED_TEST(DropoutTest, NormalNumbersHaveTheMomentsAndDependOnTheKeyOnly) {
  using T = TypeParam;
  const std::size_t count = 50001;
  const Array<T> a(count), shorter(1001), other(count);
  fill_normal<T>({}, a.vector(), 0.02, 1, 7);
  fill_normal<T>({}, shorter.vector(), 0.02, 1, 7);
  fill_normal<T>({}, other.vector(), 0.02, 1, 8);
  const Numbers x = a.get(), y = other.get();
  double mean = 0, variance = 0, fourth = 0, covariance = 0;
  for (std::size_t i = 0; i < count; ++i) {
    mean += x[i] / 0.02 / count;
    variance += std::pow(x[i] / 0.02, 2) / count;
    fourth += std::pow(x[i] / 0.02, 4) / count;
    covariance += x[i] * y[i] / 0.0004 / count;
  }
  // Five standard errors: 1, sqrt(2), sqrt(96) and 1 over sqrt(count).
  const double error = 5 / std::sqrt(static_cast<double>(count));
  EXPECT_NEAR(mean, 0, error);
  EXPECT_NEAR(variance, 1, error * std::sqrt(2.0));
  EXPECT_NEAR(fourth, 3, error * std::sqrt(96.0));
  EXPECT_NEAR(covariance, 0, error);
  const std::vector<T> prefix = a.exact();
  EXPECT_EQ(shorter.exact(), std::vector<T>(prefix.begin(), prefix.begin() + 1001));
}

TEST(Normal, FloatIsTheRoundedDouble) {
  const Array<float> single(99);
  const Array<double> exact(99);
  fill_normal<float>({}, single.vector(), 0.5, 3, 4);
  fill_normal<double>({}, exact.vector(), 0.5, 3, 4);
  const auto values = single.exact();
  const auto expected = exact.exact();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(values[i], static_cast<float>(expected[i]));
  }
}

}  // namespace minipipe::core::testing
