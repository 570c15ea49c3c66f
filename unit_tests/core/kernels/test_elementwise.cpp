#include "core/kernels/bias.hpp"
#include "core/kernels/elementwise.hpp"
#include "core/kernels/gelu.hpp"
#include "core/kernels/math.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// A sum of values below 1 in any order.
template <class T>
double sum_bound(double terms) {
  return rounding<T> * terms * terms;
}

}  // namespace

TEST(Exponential, FloatVersionIsWithinItsStatedError) {
  double worst = 0;
  for (float x = -87.0F; x < 88.0F; x += 0.00137F) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(exponential(x) - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(exponential(0.0F), 1.0F);
  EXPECT_LT(exponential(-1e30F), 2e-38F);
  EXPECT_GT(exponential(1e30F), 1e38F);
  EXPECT_TRUE(std::isnan(exponential(std::nanf(""))));
}

template <class T>
class Elementwise : public ::testing::Test {};
TYPED_TEST_SUITE(Elementwise, Scalars);

TYPED_TEST(Elementwise, GeluAgreesWithTheTanhForm) {
  using T = TypeParam;
  for (const std::size_t count : {1U, 7U, 5003U}) {
    const Numbers x = random_numbers(count, 4, -6, 6);
    const Array<T> input(x), out(count);
    gelu_forward<T>({}, out.vector(), input.vector());
    Numbers expected;
    for (const double value : x) {
      expected.push_back(gelu(value));
    }
    // The argument of the exponential is up to 2u = 25 and carries 4 roundings.
    expect_near(out.get(), expected, 4e-16, 120 * rounding<T>);
  }
}

TYPED_TEST(Elementwise, GeluOfLargeArgumentsIsFinite) {
  using T = TypeParam;
  const Array<T> input(Numbers{-1e4, -50, 0, 50, 1e4}), out(5), gradient(5), ones(Numbers(5, 1.0));
  gelu_forward<T>({}, out.vector(), input.vector());
  gelu_backward<T>({}, gradient.vector(), ones.vector(), input.vector());
  expect_near(out.get(), {0, 0, 0, 50, 1e4}, 1e-30, rounding<T>);
  expect_near(gradient.get(), {0, 0, 0.5, 1, 1}, 1e-25);
}

TYPED_TEST(Elementwise, GeluBackwardAgreesWithDifferences) {
  using T = TypeParam;
  const Numbers x = random_numbers(101, 5, -4, 4), w = random_numbers(101, 6);
  const Array<T> input(x), output_gradient(w), gradient(101);
  gelu_backward<T>({}, gradient.vector(), output_gradient.vector(), input.vector());
  const Numbers expected = differences(x, [&](const Numbers& at) {
    double total = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      total += w[i] * gelu(at[i]);
    }
    return total;
  });
  expect_near(gradient.get(), expected, std::is_same_v<T, float> ? 200 * rounding<float> : 1e-9);
  gelu_backward<T>({}, output_gradient.vector(), output_gradient.vector(), input.vector());
  EXPECT_EQ(output_gradient.exact(), gradient.exact()) << "in place";
  gelu_backward<T>({}, input.vector(), Array<T>(w).vector(), input.vector());
  EXPECT_EQ(input.exact(), gradient.exact()) << "over the input";
}

TYPED_TEST(Elementwise, BiasIsAddedToEveryRowAndItsGradientAccumulates) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::array<int, 2>{1, 1}, {7, 3}, {33, 65}, {150, 130}}) {
    const Numbers x = random_numbers(rows * columns, 7), b = random_numbers(columns, 8);
    const Array<T> values(x), bias(b), gradient(b);
    bias_add<T>({}, values.matrix(rows, columns), bias.vector());
    bias_gradient<T>({}, gradient.vector(), Array<T>(x).matrix(rows, columns));
    Numbers sums = b, added = x;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        sums[c] += x[r * columns + c];
        added[r * columns + c] += b[c];
      }
    }
    expect_near(values.get(), added, 2 * rounding<T>);
    expect_near(gradient.get(), sums, sum_bound<T>(rows + 1));
  }
}

TYPED_TEST(Elementwise, ResidualScaleFillCopy) {
  using T = TypeParam;
  const std::size_t count = 4099;
  const Numbers a = random_numbers(count, 9), b = random_numbers(count, 10);
  const Array<T> left(a), right(b), out(count), filled(count), copied(count);
  residual_add<T>({}, out.vector(), left.vector(), right.vector());
  fill<T>({}, filled.vector(), T(2.5));
  copy<T>({}, copied.vector(), left.vector());
  scale<T>({}, right.vector(), T(-0.25));
  Numbers sum = a, scaled = b;
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] += b[i];
    scaled[i] *= -0.25;
  }
  expect_near(out.get(), sum, 2 * rounding<T>);
  EXPECT_EQ(filled.get(), Numbers(count, 2.5));
  EXPECT_EQ(copied.get(), a);
  EXPECT_EQ(right.get(), scaled);
  residual_add<T>({}, left.vector(), left.vector(), Array<T>(b).vector());
  EXPECT_EQ(left.exact(), out.exact()) << "in place";
  EXPECT_THROW(copy<T>({}, copied.vector(), Array<T>(3).vector()), RunError);
}

}  // namespace minipipe::core::testing
