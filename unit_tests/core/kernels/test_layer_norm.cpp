#include "core/kernels/layer_norm.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

namespace {

constexpr double epsilon = 1e-5;

Numbers reference(int rows, int columns, const Numbers& x, const Numbers& gamma, const Numbers& beta) {
  Numbers y(x.size());
  for (int r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int c = 0; c < columns; ++c) {
      mean += x[r * columns + c] / columns;
    }
    for (int c = 0; c < columns; ++c) {
      variance += std::pow(x[r * columns + c] - mean, 2) / columns;
    }
    for (int c = 0; c < columns; ++c) {
      y[r * columns + c] = (x[r * columns + c] - mean) / std::sqrt(variance + epsilon) * gamma[c] + beta[c];
    }
  }
  return y;
}

}  // namespace

template <class T>
class LayerNorm : public ::testing::Test {};
TYPED_TEST_SUITE(LayerNorm, Scalars);

TYPED_TEST(LayerNorm, ForwardAndGradientsAgreeWithLoopAndDifferences) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::array<int, 2>{1, 5}, {7, 33}, {66, 16}, {3, 70}}) {
    const Numbers x = random_numbers(rows * columns, 1, -2, 3), gamma = random_numbers(columns, 2, 0.5, 1.5);
    const Numbers beta = random_numbers(columns, 3), w = random_numbers(rows * columns, 4),
                  before = random_numbers(x.size(), 5);
    const Array<T> input(x), g(gamma), b(beta), dy(w), out(x.size()), mean(rows), rstd(rows), dx(x.size());
    layer_norm_forward<T>({}, out.matrix(rows, columns), mean.vector(), rstd.vector(), input.matrix(rows, columns), g.vector(),
                          b.vector(), T(epsilon));
    // Values below 4 after a sum over the columns; the standard deviation is above 0.5 here.
    const double tolerance = rounding<T> * (columns + 20) * 10;
    expect_near(out.get(), reference(rows, columns, x, gamma, beta), tolerance);

    layer_norm_backward_input<T>({}, dx.matrix(rows, columns), dy.matrix(rows, columns), input.matrix(rows, columns),
                                 mean.vector(), rstd.vector(), g.vector(), false);
    const Numbers expected =
        differences(x, [&](const Numbers& at) { return dot(w, reference(rows, columns, at, gamma, beta)); });
    expect_near(dx.get(), expected, tolerance + 3e-8);

    const Array<T> added(before);
    layer_norm_backward_input<T>({}, added.matrix(rows, columns), dy.matrix(rows, columns), input.matrix(rows, columns),
                                 mean.vector(), rstd.vector(), g.vector(), true);
    Numbers sum = dx.get();
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += before[i];
    }
    expect_near(added.get(), sum, 16 * rounding<T>);

    const Array<T> dgamma(gamma), dbeta(beta);
    layer_norm_backward_parameters<T>({}, dgamma.vector(), dbeta.vector(), dy.matrix(rows, columns),
                                      input.matrix(rows, columns), mean.vector(), rstd.vector());
    Numbers expected_gamma =
        differences(gamma, [&](const Numbers& at) { return dot(w, reference(rows, columns, x, at, beta)); });
    Numbers expected_beta =
        differences(beta, [&](const Numbers& at) { return dot(w, reference(rows, columns, x, gamma, at)); });
    for (int c = 0; c < columns; ++c) {
      expected_gamma[c] += gamma[c];
      expected_beta[c] += beta[c];
    }
    expect_near(dgamma.get(), expected_gamma, tolerance * rows + 3e-8);
    expect_near(dbeta.get(), expected_beta, tolerance * rows + 3e-8);
  }
}

TYPED_TEST(LayerNorm, LargeMeanDoesNotCancelTheVariance) {
  using T = TypeParam;
  const Array<T> input(Numbers{4096, 4097, 4098, 4099}), one(Numbers(4, 1.0)), zero(Numbers(4, 0.0)), out(4), mean(1), rstd(1);
  layer_norm_forward<T>({}, out.matrix(1, 4), mean.vector(), rstd.vector(), input.matrix(1, 4), one.vector(), zero.vector(),
                        T(epsilon));
  expect_near(out.get(), reference(1, 4, input.get(), one.get(), zero.get()), 8 * rounding<T>);
}

// Long rows are worked on one after the other, each at several stages: few rows, rows that are no whole packs, a large mean.
TYPED_TEST(LayerNorm, LongRowsAgreeWithLoop) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::array<int, 2>{1, 257}, {2, 768}, {3, 272}, {40, 300}}) {
    for (const double offset : {0.0, 4096.0}) {
      const std::size_t size = static_cast<std::size_t>(rows) * columns;
      const Array<T> input(random_numbers(size, 1, offset - 2, offset + 3));
      const Numbers x = input.get(), gamma = random_numbers(columns, 2, 0.5, 1.5), beta = random_numbers(columns, 3);
      const Array<T> g(gamma), b(beta), out(size), mean(rows), rstd(rows);
      layer_norm_forward<T>({}, out.matrix(rows, columns), mean.vector(), rstd.vector(), input.matrix(rows, columns),
                            g.vector(), b.vector(), T(epsilon));
      // The mean is a sum of columns/16 terms a lane; the standard deviation is above 1 here.
      const double tolerance = rounding<T> * (columns / 16 + 20) * (offset + 10);
      expect_near(out.get(), reference(rows, columns, x, gamma, beta), tolerance);
      for (int r = 0; r < rows; ++r) {
        double average = 0, variance = 0;
        for (int c = 0; c < columns; ++c) average += x[r * columns + c] / columns;
        for (int c = 0; c < columns; ++c) variance += std::pow(x[r * columns + c] - average, 2) / columns;
        EXPECT_NEAR(mean.get()[r], average, tolerance) << r;
        EXPECT_NEAR(rstd.get()[r], 1 / std::sqrt(variance + epsilon), tolerance) << r;
      }
    }
  }
}

// Rows are worked on in groups; which ones share a group must not matter. The counts leave some rows over.
TYPED_TEST(LayerNorm, ARowDoesNotDependOnItsNeighbours) {
  using T = TypeParam;
  const int rows = 39;
  for (const int columns : {5, 128, 300}) {
    const std::size_t size = static_cast<std::size_t>(rows) * columns;
    const Array<T> x(random_numbers(size, 1)), dy(random_numbers(size, 2)), out(size), dx(random_numbers(size, 3));
    const Array<T> gamma(random_numbers(columns, 4)), beta(random_numbers(columns, 5)), mean(rows), rstd(rows);
    const Array<T> out_alone(size), dx_alone(random_numbers(size, 3)), mean_alone(rows), rstd_alone(rows);
    const T epsilon(1e-5);
    layer_norm_forward<T>({}, out.matrix(rows, columns), mean.vector(), rstd.vector(), x.matrix(rows, columns), gamma.vector(),
                          beta.vector(), epsilon);
    layer_norm_backward_input<T>({}, dx.matrix(rows, columns), dy.matrix(rows, columns), x.matrix(rows, columns), mean.vector(),
                                 rstd.vector(), gamma.vector(), true);
    for (int row = 0; row < rows; ++row) {
      const auto one = [&](const Array<T>& array) {
        return slice_matrix<T>(array.vector(), static_cast<std::int64_t>(row) * columns, 1, columns);
      };
      layer_norm_forward<T>({}, one(out_alone), slice<T>(mean_alone.vector(), row, 1), slice<T>(rstd_alone.vector(), row, 1),
                            one(x), gamma.vector(), beta.vector(), epsilon);
      layer_norm_backward_input<T>({}, one(dx_alone), one(dy), one(x), slice<T>(mean_alone.vector(), row, 1),
                                   slice<T>(rstd_alone.vector(), row, 1), gamma.vector(), true);
    }
    EXPECT_EQ(out.exact(), out_alone.exact());
    EXPECT_EQ(dx.exact(), dx_alone.exact());
    EXPECT_EQ(mean.exact(), mean_alone.exact());
    EXPECT_EQ(rstd.exact(), rstd_alone.exact());
  }
}

}  // namespace minipipe::core::testing
