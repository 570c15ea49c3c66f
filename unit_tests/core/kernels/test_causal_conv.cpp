#include "core/kernels/causal_conv.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

namespace {

struct Case {
  int batch, sequence, columns, taps;
};
// Fewer positions than taps, several row blocks, more than one column group, one tap.
constexpr Case cases[] = {{1, 1, 1, 1}, {2, 3, 5, 4}, {3, 37, 7, 4}, {1, 40, 70, 3}, {2, 9, 64, 1}, {1, 5, 3, 8}};

Numbers convolve(const Case& z, const Numbers& x, const Numbers& weight, const Numbers& bias) {
  Numbers y(x.size());
  for (int b = 0; b < z.batch; ++b) {
    for (int t = 0; t < z.sequence; ++t) {
      for (int c = 0; c < z.columns; ++c) {
        double u = bias[c];
        for (int k = 0; k < z.taps; ++k) {
          const int from = t - z.taps + 1 + k;
          if (from >= 0) u += weight[c * z.taps + k] * x[(b * z.sequence + from) * z.columns + c];
        }
        y[(b * z.sequence + t) * z.columns + c] = u / (1 + std::exp(-u));
      }
    }
  }
  return y;
}

// Rows of `columns` values in the middle of rows of columns + 3.
constexpr int before = 2, padding = 3;
Numbers widen(const Numbers& values, int columns) {
  const std::size_t rows = values.size() / columns;
  Numbers wide(rows * (columns + padding), 1e3);
  for (std::size_t i = 0; i < values.size(); ++i) wide[i / columns * (columns + padding) + before + i % columns] = values[i];
  return wide;
}
Numbers narrow(const Numbers& wide, int columns) {
  const std::size_t rows = wide.size() / (columns + padding);
  Numbers values(rows * columns);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = wide[i / columns * (columns + padding) + before + i % columns];
  return values;
}

}  // namespace

template <class T>
class CausalConv : public ::testing::Test {};
TYPED_TEST_SUITE(CausalConv, Scalars);

TYPED_TEST(CausalConv, AgreesWithLoopAndDifferences) {
  using T = TypeParam;
  for (const Case& z : cases) {
    const int rows = z.batch * z.sequence, wide = z.columns + padding;
    const ConvShape shape{z.batch, z.sequence};
    const Numbers x = random_numbers(rows * z.columns, 1, -2, 2), w = random_numbers(z.columns * z.taps, 2);
    const Numbers bias = random_numbers(z.columns, 3), dy = random_numbers(x.size(), 4);
    const Array<T> input(widen(x, z.columns)), weight(w), b(bias), out(x.size()), dout(dy);
    const Columns<const T> x_columns = columns_of<const T>(input.matrix(rows, wide), before, z.columns);
    causal_conv_forward<T>({}, out.matrix(rows, z.columns), x_columns, weight.matrix(z.columns, z.taps), b.vector(), shape);
    // Sums of K + 1 terms below 2; SiLU and its slope add a few roundings.
    const double tolerance = rounding<T> * (z.taps + 8) * 8;
    expect_near(out.get(), convolve(z, x, w, bias), tolerance);

    const Array<T> dx(Numbers(input.get().size(), 7)), du(x.size());
    causal_conv_backward_input<T>({}, columns_of(dx.matrix(rows, wide), before, z.columns), du.matrix(rows, z.columns),
                                  dout.matrix(rows, z.columns), x_columns, weight.matrix(z.columns, z.taps), b.vector(), shape);
    const auto loss_of_x = [&](const Numbers& at) { return dot(dy, convolve(z, at, w, bias)); };
    expect_near(narrow(dx.get(), z.columns), differences(x, loss_of_x), z.taps * tolerance + 3e-8);
    Numbers untouched = widen(narrow(dx.get(), z.columns), z.columns);
    for (double& value : untouched) value = value == 1e3 ? 7 : value;
    EXPECT_EQ(dx.get(), untouched);

    const Array<T> dweight(w), dbias(bias);
    causal_conv_backward_parameters<T>({}, dweight.matrix(z.columns, z.taps), dbias.vector(), du.matrix(rows, z.columns),
                                       x_columns, shape);
    Numbers expected = differences(w, [&](const Numbers& at) { return dot(dy, convolve(z, x, at, bias)); });
    for (std::size_t i = 0; i < w.size(); ++i) expected[i] += w[i];
    expect_near(dweight.get(), expected, rows * tolerance + 3e-8);
    expected = differences(bias, [&](const Numbers& at) { return dot(dy, convolve(z, x, w, at)); });
    for (std::size_t i = 0; i < bias.size(); ++i) expected[i] += bias[i];
    expect_near(dbias.get(), expected, rows * tolerance + 3e-8);

    // The gradient to u may take the place of the output's.
    const Array<T> again(Numbers(input.get().size(), 7));
    causal_conv_backward_input<T>({}, columns_of(again.matrix(rows, wide), before, z.columns), dout.matrix(rows, z.columns),
                                  dout.matrix(rows, z.columns), x_columns, weight.matrix(z.columns, z.taps), b.vector(), shape);
    EXPECT_EQ(again.exact(), dx.exact());
    EXPECT_EQ(dout.exact(), du.exact());
  }
}

TEST(CausalConvShapes, MismatchThrows) {
  const Array<float> x(12), w(6), b(2), long_w(18);
  const auto forward = [&](ConvShape shape, Matrix<float> weight) {
    causal_conv_forward<float>({}, x.matrix(6, 2), columns_of<const float>(x.matrix(6, 2)), weight, b.vector(), shape);
  };
  EXPECT_NO_THROW(forward({2, 3}, w.matrix(2, 3)));
  EXPECT_THROW(forward({2, 2}, w.matrix(2, 3)), RunError);
  EXPECT_THROW(forward({2, 3}, w.matrix(3, 2)), RunError);
  EXPECT_THROW(forward({2, 3}, long_w.matrix(2, 9)), RunError);
}

}  // namespace minipipe::core::testing
