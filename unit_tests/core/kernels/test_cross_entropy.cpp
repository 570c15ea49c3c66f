#include "core/kernels/cross_entropy.hpp"
#include "core/kernels/reduce.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

namespace {

double loss(const Numbers& logits, int row, int columns, int target) {
  double largest = -1e300, total = 0;
  for (int c = 0; c < columns; ++c) {
    largest = std::max(largest, logits[row * columns + c]);
  }
  for (int c = 0; c < columns; ++c) {
    total += std::exp(logits[row * columns + c] - largest);
  }
  return target < 0 ? 0 : std::log(total) + largest - logits[row * columns + target];
}

}  // namespace

template <class T>
class CrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropy, Scalars);

TYPED_TEST(CrossEntropy, LossAndGradientAgreeWithLoopAndDifferences) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::array<int, 2>{1, 1}, {7, 33}, {5, 257}}) {
    const double scale = 0.125;
    const Numbers x = random_numbers(rows * columns, 1, -8, 8);
    std::vector<std::int32_t> targets(rows);
    for (int r = 0; r < rows; ++r) {
      targets[r] = r == 3 ? -1 : r * 31 % columns;
    }
    const auto ids = integers(targets);
    const Array<T> logits(x), losses(rows), only_losses(rows);
    cross_entropy_loss<T>({}, only_losses.vector(), logits.matrix(rows, columns), ids);
    EXPECT_EQ(logits.get(), x) << "the loss-only form leaves the logits alone";
    cross_entropy_gradient<T>({}, losses.vector(), logits.matrix(rows, columns), ids, T(scale));
    Numbers expected(rows);
    for (int r = 0; r < rows; ++r) {
      expected[r] = loss(x, r, columns, targets[r]);
    }
    // Differences up to 16 into the exponential, a sum of `columns` terms, a logarithm.
    const double tolerance = rounding<T> * (columns + 60);
    expect_near(losses.get(), expected, tolerance);
    expect_near(only_losses.get(), expected, tolerance);
    const Numbers gradient = differences(x, [&](const Numbers& at) {
      double total = 0;
      for (int r = 0; r < rows; ++r) {
        total += scale * loss(at, r, columns, targets[r]);
      }
      return total;
    });
    expect_near(logits.get(), gradient, tolerance * scale + 2e-9);
  }
}

// Rows longer than what the loss goes over at a time, with the largest logit near the end, near the beginning and anywhere.
TYPED_TEST(CrossEntropy, LongRowsAgreeWithLoopWhereverTheirLargestLogitIs) {
  using T = TypeParam;
  for (const int columns : {1023, 1024, 2048, 2049, 5003}) {
    const int rows = 3;
    Numbers x = random_numbers(rows * columns, 1, -8, 8);
    for (int c = 0; c < columns; ++c) {
      const float rise = 40.0f * static_cast<float>(c) / static_cast<float>(columns);
      x[c] = static_cast<float>(x[c]) + rise;
      x[columns + c] = static_cast<float>(x[columns + c]) - rise;
    }
    const std::vector<std::int32_t> targets{columns - 1, 17, columns / 2};
    const auto ids = integers(targets);
    const Array<T> stored(x), losses(rows), only_losses(rows);
    const Numbers logits = stored.get();
    cross_entropy_loss<T>({}, only_losses.vector(), stored.matrix(rows, columns), ids);
    cross_entropy_gradient<T>({}, losses.vector(), stored.matrix(rows, columns), ids, T(1));
    Numbers expected(rows), gradient(logits.size());
    for (int r = 0; r < rows; ++r) {
      expected[r] = loss(logits, r, columns, targets[r]);
      const double log_total = expected[r] + logits[r * columns + targets[r]];
      for (int c = 0; c < columns; ++c) {
        gradient[r * columns + c] = std::exp(logits[r * columns + c] - log_total) - (c == targets[r] ? 1 : 0);
      }
    }
    // Differences up to 56 into the exponential, sums of columns/16 terms a lane, a logarithm.
    const double tolerance = rounding<T> * (columns / 16 + 120);
    expect_near(losses.get(), expected, tolerance);
    expect_near(only_losses.get(), expected, tolerance);
    expect_near(stored.get(), gradient, tolerance);
  }
}

TYPED_TEST(CrossEntropy, LargeLogitsNeitherOverflowNorCancel) {
  using T = TypeParam;
  const auto targets = integers({0, 1});
  const Array<T> logits(Numbers{3000, 3000 - 20, -3000, 3000}), losses(2);
  cross_entropy_gradient<T>({}, losses.vector(), logits.matrix(2, 2), targets, T(1));
  const double p = std::exp(-20.0) / (1 + std::exp(-20.0));
  expect_near(losses.get(), {std::log1p(std::exp(-20.0)), 0}, 2 * rounding<T>);
  expect_near(logits.get(), {-p, p, 0, 0}, 1e-37, 8 * rounding<T>);
}

TYPED_TEST(CrossEntropy, SumsAreInFixedBlocksAndAccumulate) {
  using T = TypeParam;
  for (const std::size_t count : {1U, 15U, 4096U, 10007U}) {
    const Numbers x = random_numbers(count, 2);
    const Array<T> values(x);
    const Array<double> result(1), workspace(static_cast<std::size_t>(sum_workspace(count)));
    long double plain = 0, squares = 0;
    for (const double value : x) {
      plain += value;
      squares += static_cast<long double>(value) * value;
    }
    // At most 256 additions per lane, a tree of 16 lanes, and the blocks; terms below 1.
    const double tolerance = rounding<double> * 300 * count;
    sum<T>({}, result.vector(), values.vector(), workspace.vector(), false);
    EXPECT_NEAR(read_scalar({}, result.vector()), static_cast<double>(plain), tolerance);
    sum<T>({}, result.vector(), values.vector(), workspace.vector(), true);
    EXPECT_NEAR(read_scalar({}, result.vector()), static_cast<double>(2 * plain), 2 * tolerance);
    sum_of_squares<T>({}, result.vector(), values.vector(), workspace.vector(), false);
    EXPECT_NEAR(read_scalar({}, result.vector()), static_cast<double>(squares), tolerance);
  }
}

}  // namespace minipipe::core::testing
