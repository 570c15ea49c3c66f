#include "core/kernels/embedding.hpp"
#include "core/kernels/rms_norm.hpp"
#include "core/kernels/rotary.hpp"
#include "core/kernels/swiglu.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

namespace {

constexpr double epsilon = 1e-5;

Numbers rms_norm(int rows, int columns, const Numbers& x, const Numbers& gamma) {
  Numbers y(x.size());
  for (int r = 0; r < rows; ++r) {
    double squares = 0;
    for (int c = 0; c < columns; ++c) squares += x[r * columns + c] * x[r * columns + c] / columns;
    for (int c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] / std::sqrt(squares + epsilon) * gamma[c];
  }
  return y;
}

// x cos + rotate_half(x) sin, with rotate_half(x) = (-second half, first half), as Hugging Face writes it.
Numbers rotary(int batch, int sequence, int heads, int depth, double base, const Numbers& x) {
  Numbers y(x.size());
  for (int row = 0; row < batch * sequence; ++row) {
    for (int h = 0; h < heads; ++h) {
      const int first = (row * heads + h) * depth;
      for (int i = 0; i < depth; ++i) {
        const double angle = row % sequence / std::pow(base, 2.0 * (i % (depth / 2)) / depth);
        const double turned = i < depth / 2 ? -x[first + i + depth / 2] : x[first + i - depth / 2];
        y[first + i] = x[first + i] * std::cos(angle) + turned * std::sin(angle);
      }
    }
  }
  return y;
}

double swiglu(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

}  // namespace

template <class T>
class LlamaKernels : public ::testing::Test {};
TYPED_TEST_SUITE(LlamaKernels, Scalars);

TYPED_TEST(LlamaKernels, RmsNormAndItsGradientsAgreeWithLoopAndDifferences) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {std::array<int, 2>{1, 5}, {7, 33}, {66, 16}, {3, 70}}) {
    const Numbers x = random_numbers(rows * columns, 1, -2, 3), gamma = random_numbers(columns, 2, 0.5, 1.5);
    const Numbers w = random_numbers(rows * columns, 4), before = random_numbers(x.size(), 5);
    const Array<T> input(x), g(gamma), dy(w), out(x.size()), rstd(rows), dx(x.size());
    rms_norm_forward<T>({}, out.matrix(rows, columns), rstd.vector(), input.matrix(rows, columns), g.vector(), T(epsilon));
    // Values below 4 after a sum over the columns; the root mean square is above 0.5 here.
    const double tolerance = rounding<T> * (columns + 20) * 10;
    expect_near(out.get(), rms_norm(rows, columns, x, gamma), tolerance);

    rms_norm_backward_input<T>({}, dx.matrix(rows, columns), dy.matrix(rows, columns), input.matrix(rows, columns),
                               rstd.vector(), g.vector(), false);
    expect_near(dx.get(), differences(x, [&](const Numbers& at) { return dot(w, rms_norm(rows, columns, at, gamma)); }),
                tolerance + 3e-8);
    const Array<T> added(before);
    rms_norm_backward_input<T>({}, added.matrix(rows, columns), dy.matrix(rows, columns), input.matrix(rows, columns),
                               rstd.vector(), g.vector(), true);
    Numbers sum = dx.get();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
    expect_near(added.get(), sum, 16 * rounding<T>);

    const Array<T> dgamma(gamma);
    rms_norm_backward_parameters<T>({}, dgamma.vector(), dy.matrix(rows, columns), input.matrix(rows, columns), rstd.vector());
    Numbers expected = differences(gamma, [&](const Numbers& at) { return dot(w, rms_norm(rows, columns, x, at)); });
    for (int c = 0; c < columns; ++c) expected[c] += gamma[c];
    expect_near(dgamma.get(), expected, tolerance * rows + 3e-8);
  }
}

TYPED_TEST(LlamaKernels, RotaryAgreesWithRotateHalf) {
  using T = TypeParam;
  for (const auto& [batch, sequence, heads, depth] : {std::array<int, 4>{1, 1, 1, 2}, {2, 9, 3, 6}, {1, 40, 2, 64}}) {
    const int rows = batch * sequence;
    const Numbers x = random_numbers(rows * heads * depth, 6);
    const Array<double> table(sequence * depth);
    rotary_table({}, table.matrix(sequence, depth), 10000);
    const Array<T> values(x);
    rotary_apply<T>({}, values.matrix(rows, heads * depth), table.matrix(sequence, depth), sequence);
    // Angles below 40 carry the roundings of a power and a product, in double.
    expect_near(values.get(), rotary(batch, sequence, heads, depth, 10000, x), 6 * rounding<T> + 1e-13);
    rotary_apply<T>({}, values.matrix(rows, heads * depth), table.matrix(sequence, depth), sequence, true);
    expect_near(values.get(), x, 8 * rounding<T>);
  }
}

// The transpose: w.R(x) has the gradient R^-1(w).
TYPED_TEST(LlamaKernels, RotaryBackwardIsTheInverse) {
  using T = TypeParam;
  const Numbers x = random_numbers(2 * 5 * 8, 7), w = random_numbers(2 * 5 * 8, 8);
  const Array<double> table(5 * 4);
  rotary_table({}, table.matrix(5, 4), 100);
  const Array<T> gradient(w);
  rotary_apply<T>({}, gradient.matrix(10, 8), table.matrix(5, 4), 5, true);
  expect_near(gradient.get(), differences(x, [&](const Numbers& at) { return dot(w, rotary(2, 5, 2, 4, 100, at)); }),
              6 * rounding<T> + 1e-9);
}

TYPED_TEST(LlamaKernels, SwigluAgreesWithLoopAndDifferences) {
  using T = TypeParam;
  for (const std::size_t count : {1U, 7U, 5003U}) {
    const Numbers g = random_numbers(count, 9, -6, 6), u = random_numbers(count, 10), w = random_numbers(count, 11);
    const Array<T> gate(g), up(u), out(count), dg(count), du(w);
    swiglu_forward<T>({}, out.vector(), gate.vector(), up.vector());
    swiglu_backward<T>({}, dg.vector(), du.vector(), du.vector(), gate.vector(), up.vector());
    Numbers expected, expected_g, expected_u;
    for (std::size_t i = 0; i < count; ++i) {
      constexpr double step = 1e-5;
      expected.push_back(swiglu(g[i], u[i]));
      expected_g.push_back(w[i] * (swiglu(g[i] + step, u[i]) - swiglu(g[i] - step, u[i])) / (2 * step));
      expected_u.push_back(w[i] * swiglu(g[i], 1));
    }
    // The exponential's stated error and a few roundings of values below 6.
    const double tolerance = 60 * rounding<T> + 1e-15;
    expect_near(out.get(), expected, tolerance);
    expect_near(dg.get(), expected_g, tolerance + 1e-9);
    expect_near(du.get(), expected_u, tolerance);
    swiglu_backward<T>({}, gate.vector(), up.vector(), Array<T>(w).vector(), gate.vector(), up.vector());
    EXPECT_EQ(gate.exact(), dg.exact()) << "over the inputs";
    EXPECT_EQ(up.exact(), du.exact()) << "over the inputs";
  }
}

TYPED_TEST(LlamaKernels, SwigluOfLargeArgumentsIsFinite) {
  using T = TypeParam;
  const Array<T> gate(Numbers{-1e4, -90, 0, 90, 1e4}), one(Numbers(5, 1.0)), out(5), dg(5), du(5);
  swiglu_forward<T>({}, out.vector(), gate.vector(), one.vector());
  swiglu_backward<T>({}, dg.vector(), du.vector(), one.vector(), gate.vector(), one.vector());
  expect_near(out.get(), {0, 0, 0, 90, 1e4}, 1e-30, rounding<T>);
  expect_near(dg.get(), {0, 0, 0.5, 1, 1}, 1e-30);
  expect_near(du.get(), {0, 0, 0, 90, 1e4}, 1e-30, rounding<T>);
  EXPECT_THROW(swiglu_backward<T>({}, dg.vector(), du.vector(), dg.vector(), gate.vector(), one.vector()), RunError);
}

TYPED_TEST(LlamaKernels, EmbeddingWithoutPositions) {
  using T = TypeParam;
  const Numbers t = random_numbers(5 * 3, 12), w = random_numbers(4 * 3, 13);
  const std::vector<std::int32_t> tokens{4, 0, 4, 2};
  const auto held = integers(tokens);
  const auto token_matrix = slice_matrix<std::int32_t>(Vector<std::int32_t>(held), 0, 2, 2);
  const Array<T> table(t), out(12), dout(w), gradient(t);
  embedding_forward<T>({}, out.matrix(4, 3), token_matrix, table.matrix(5, 3), {});
  embedding_backward<T>({}, gradient.matrix(5, 3), {}, dout.matrix(4, 3), token_matrix);
  Numbers expected, expected_gradient = t;
  for (int r = 0; r < 4; ++r) {
    for (int c = 0; c < 3; ++c) {
      expected.push_back(t[tokens[r] * 3 + c]);
      expected_gradient[tokens[r] * 3 + c] += w[r * 3 + c];
    }
  }
  EXPECT_EQ(out.get(), expected);
  expect_near(gradient.get(), expected_gradient, 8 * rounding<T>);
}

TEST(Rotary, RefusesOddHeads) {
  const Array<double> table(6), values(6);
  EXPECT_THROW(rotary_table({}, table.matrix(2, 3), 10000), RunError);
  EXPECT_THROW(rotary_apply<double>({}, values.matrix(2, 3), table.matrix(3, 2), 2), RunError);
  EXPECT_THROW(rotary_apply<double>({}, values.matrix(3, 2), table.matrix(2, 2), 3), RunError);
}

}  // namespace minipipe::core::testing
