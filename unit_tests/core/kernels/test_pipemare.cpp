#include "core/optim/pipemare.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

template <class T>
class PipeMare : public ::testing::Test {};
TYPED_TEST_SUITE(PipeMare, Scalars);

TYPED_TEST(PipeMare, CorrectionAgreesWithLoop) {
  using T = TypeParam;
  const std::size_t count = 5000;
  const double gamma = 0.75, delay = 2.5;
  Numbers w = random_numbers(count, 1), d = random_numbers(count, 2), before = random_numbers(count, 3);
  const Array<T> weights(w), velocity(d), corrected(before);
  pipemare_correct<T>({}, velocity.vector(), corrected.vector(), weights.vector(), gamma, delay);
  for (std::size_t i = 0; i < count; ++i) {
    d[i] = gamma * d[i] + (1 - gamma) * (w[i] - before[i]);
    before[i] = w[i] - delay * d[i];
  }
  EXPECT_EQ(weights.get(), w);
  expect_near(velocity.get(), d, 8 * rounding<T>);
  expect_near(corrected.get(), before, 40 * rounding<T>);
}

TEST(PipeMareRate, IsDividedLessAndLess) {
  EXPECT_DOUBLE_EQ(pipemare_rate_divisor(0, 100, 4), 4);
  EXPECT_DOUBLE_EQ(pipemare_rate_divisor(50, 100, 4), 2);
  EXPECT_DOUBLE_EQ(pipemare_rate_divisor(100, 100, 4), 1);
  EXPECT_DOUBLE_EQ(pipemare_rate_divisor(1000, 100, 4), 1);
}

TEST(PipeMareRate, IsNeverRaised) {
  EXPECT_EQ(pipemare_rate_divisor(0, 100, 0.25), 1);
  EXPECT_EQ(pipemare_rate_divisor(0, 0, 4), 1);
}

TEST(PipeMareGamma, ForgetsWithinTheDelay) {
  EXPECT_DOUBLE_EQ(std::pow(pipemare_gamma(0.1, 3), 3), 0.1);
  EXPECT_EQ(pipemare_gamma(0.1, 0), 0);
}

}  // namespace minipipe::core::testing
