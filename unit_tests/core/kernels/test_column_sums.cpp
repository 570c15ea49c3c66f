#include "core/kernels/bias.hpp"
#include "core/kernels/layer_norm.hpp"
#include "core/kernels/rms_norm.hpp"
#include "core/kernels/router.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

// Sums over rows of integers small enough to be exact in any order: a row that is left out or counted twice shows. Heights and
// widths are such that a device's teams have few and many rows for a thread, and any of their numbers of columns.
namespace minipipe::core::testing {
namespace {

struct Shape {
  std::int64_t rows, columns;
};
constexpr Shape shapes[] = {{0, 3}, {1, 1}, {63, 8}, {64, 9}, {1300, 13}, {300, 2049}, {131, 4099}};

Numbers small_integers(std::int64_t count, int factor) {
  Numbers values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<double>(i * factor % 1009 % 15) - 7;
  return values;
}

// Sums over the rows of term(row, c), beside what the targets of the kernels hold before.
template <class Term>
Numbers expected(const Shape& z, double before, const Term& term) {
  Numbers sums(static_cast<std::size_t>(z.columns), before);
  for (std::int64_t row = 0; row < z.rows; ++row) {
    for (std::int64_t c = 0; c < z.columns; ++c) sums[c] += term(row, c);
  }
  return sums;
}

}  // namespace

template <class T>
class ColumnSums : public ::testing::Test {};
TYPED_TEST_SUITE(ColumnSums, Scalars);

TYPED_TEST(ColumnSums, OfABias) {
  using T = TypeParam;
  for (const Shape& z : shapes) {
    const Numbers dy = small_integers(z.rows * z.columns, 31);
    const Array<T> gradient(Numbers(static_cast<std::size_t>(z.columns), 5));
    bias_gradient<T>({}, gradient.vector(), Array<T>(dy).matrix(z.rows, z.columns));
    EXPECT_EQ(gradient.get(), expected(z, 5, [&](auto row, auto c) { return dy[row * z.columns + c]; }));
  }
}

TYPED_TEST(ColumnSums, OfNorms) {
  using T = TypeParam;
  for (const Shape& z : shapes) {
    const Numbers dy = small_integers(z.rows * z.columns, 31), x = small_integers(z.rows * z.columns, 67);
    const Numbers mean = small_integers(z.rows, 3), rstd = small_integers(z.rows, 11);
    const Array<T> gamma(Numbers(static_cast<std::size_t>(z.columns), 1)),
        beta(Numbers(static_cast<std::size_t>(z.columns), 2)), root(Numbers(static_cast<std::size_t>(z.columns), 3)),
        all_dy(dy), all_x(x), means(mean), rstds(rstd);
    layer_norm_backward_parameters<T>({}, gamma.vector(), beta.vector(), all_dy.matrix(z.rows, z.columns),
                                      all_x.matrix(z.rows, z.columns), means.vector(), rstds.vector());
    rms_norm_backward_parameters<T>({}, root.vector(), all_dy.matrix(z.rows, z.columns), all_x.matrix(z.rows, z.columns),
                                    rstds.vector());
    const auto at = [&](const Numbers& values, std::int64_t row, std::int64_t c) { return values[row * z.columns + c]; };
    EXPECT_EQ(gamma.get(), expected(z, 1, [&](auto r, auto c) { return at(dy, r, c) * (at(x, r, c) - mean[r]) * rstd[r]; }));
    EXPECT_EQ(beta.get(), expected(z, 2, [&](auto r, auto c) { return at(dy, r, c); }));
    EXPECT_EQ(root.get(), expected(z, 3, [&](auto r, auto c) { return at(dy, r, c) * at(x, r, c) * rstd[r]; }));
  }
}

TYPED_TEST(ColumnSums, OfTheRoutersProbabilities) {
  using T = TypeParam;
  for (const Shape& z : {Shape{0, 3}, Shape{1, 1}, Shape{1024, 9}}) {
    const Numbers p = small_integers(z.rows * z.columns, 31);
    const Array<T> load(static_cast<std::size_t>(z.columns)), mean(static_cast<std::size_t>(z.columns));
    const Array<double> loss(1);
    const auto counts = integers(std::vector<std::int32_t>(static_cast<std::size_t>(z.columns), 1));
    router_balance<T>({}, loss.vector(), load.vector(), mean.vector(), counts, Array<T>(p).matrix(z.rows, z.columns));
    // A power of two of rows: the division rounds nothing.
    const double rows = z.rows > 0 ? static_cast<double>(z.rows) : 1;
    EXPECT_EQ(mean.get(), expected(z, 0, [&](auto row, auto c) { return p[row * z.columns + c] / rows; }));
  }
}

}  // namespace minipipe::core::testing
