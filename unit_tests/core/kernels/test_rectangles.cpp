#include "core/kernels/initialise.hpp"
#include "core/kernels/reduce.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/muon.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core::testing {

template <class T>
class Rectangles : public ::testing::Test {};
TYPED_TEST_SUITE(Rectangles, Scalars);

TYPED_TEST(Rectangles, OfNormalNumbersAreThoseOfTheWholeMatrix) {
  using T = TypeParam;
  const std::int64_t full_rows = 41, full_columns = 27;
  const Array<T> whole(static_cast<std::size_t>(full_rows * full_columns));
  fill_normal<T>({}, whole.vector(), 0.02, 5, 9);
  const std::vector<T> expected = whole.exact();
  for (const NormalRectangle& at : {NormalRectangle{6, 27, 27, 3, 0, 27}, NormalRectangle{41, 5, 8, 0, 11, 27},
                                    NormalRectangle{7, 9, 9, 34, 18, 27}, NormalRectangle{0, 3, 3, 0, 0, 27}}) {
    const Array<T> part(static_cast<std::size_t>(6 + 41 * 27));
    const Vector<T> target = slice<T>(part.vector(), 6, 41 * 27);
    fill_normal<T>({}, target, at, 0.02, 5, 9);
    const std::vector<T> values = part.exact();
    std::size_t written = 0;
    for (std::int64_t row = 0; row < at.rows; ++row) {
      for (std::int64_t column = 0; column < at.columns; ++column) {
        ASSERT_EQ(values[6 + row * at.stride + column], expected[(at.full_row + row) * full_columns + at.full_column + column]);
      }
    }
    for (const T value : values) written += std::isnan(value) ? 0 : 1;
    EXPECT_EQ(written, static_cast<std::size_t>(at.rows * at.columns));
  }
  const Array<T> small(20);
  EXPECT_THROW(fill_normal<T>({}, small.vector(), {3, 4, 9, 0, 0, 27}, 0.02, 5, 9), RunError);
}

// More of them than one launch takes; the shapes have less than a block, exactly one, and several.
TYPED_TEST(Rectangles, ManyHaveTheSumsOfSquaresThatEachHas) {
  using T = TypeParam;
  const Numbers numbers = random_numbers(30000, 8);
  const Array<T> values(numbers);
  std::vector<SquareRectangle<T>> rectangles;
  for (int p = 0; p < 110; ++p) {
    const std::int64_t rows = p % 3 == 0 ? 1 : 3 + p % 29, columns = p == 17 ? 0 : p % 5 == 0 ? 4096 / rows : 7 + 3 * p;
    rectangles.push_back({values.vector().data() + p, rows, columns, columns + p % 4});
  }
  rectangles.push_back({values.vector().data(), 1, 29999, 0});
  std::int64_t blocks = 0;
  for (const SquareRectangle<T>& r : rectangles) blocks += sum_workspace(r.rows * r.columns);
  const Array<double> results(rectangles.size()), result(1), workspace(static_cast<std::size_t>(blocks));
  sums_of_squares<T>({}, results.vector(), rectangles, workspace.vector());
  const Numbers sums = results.get();
  for (std::size_t p = 0; p < rectangles.size(); ++p) {
    const SquareRectangle<T>& r = rectangles[p];
    Numbers packed;
    for (std::int64_t i = 0; i < r.rows * r.columns; ++i) {
      packed.push_back(
          numbers[static_cast<std::size_t>(r.values - values.vector().data() + i / r.columns * r.stride + i % r.columns)]);
    }
    const Array<T> in_a_row(packed);
    sum_of_squares<T>({}, result.vector(), in_a_row.vector(), workspace.vector(), false);
    EXPECT_EQ(sums[p], read_scalar({}, result.vector())) << p;
  }
  EXPECT_THROW(sums_of_squares<T>({}, results.vector(), rectangles, slice<double>(workspace.vector(), 0, 5)), RunError);
}

TYPED_TEST(Rectangles, SumsOfSquaresReadNoGaps) {
  using T = TypeParam;
  for (const std::array<std::int64_t, 3>& shape :
       {std::array<std::int64_t, 3>{1, 5000, 7}, std::array<std::int64_t, 3>{97, 83, 90},
        std::array<std::int64_t, 3>{64, 64, 64}, std::array<std::int64_t, 3>{3, 1, 2}}) {
    const auto [rows, columns, stride] = shape;
    const Numbers packed = random_numbers(static_cast<std::size_t>(rows * columns), 3);
    Numbers spread(static_cast<std::size_t>((rows - 1) * stride + columns), std::numeric_limits<double>::quiet_NaN());
    for (std::int64_t i = 0; i < rows * columns; ++i) spread[i / columns * stride + i % columns] = packed[i];
    const Array<T> a(packed), b(spread);
    const Array<double> result(1), workspace(static_cast<std::size_t>(sum_workspace(rows * columns)));
    sum_of_squares<T>({}, result.vector(), a.vector(), workspace.vector(), false);
    const double expected = read_scalar({}, result.vector());
    const SquareRectangle<T> rectangle[] = {{b.vector().data(), rows, columns, stride}};
    sums_of_squares<T>({}, result.vector(), rectangle, workspace.vector());
    EXPECT_EQ(read_scalar({}, result.vector()), expected);
    sum_of_squares<T>({}, result.vector(), a.vector(), workspace.vector(), true);
    EXPECT_EQ(read_scalar({}, result.vector()), 2 * expected);
  }
}

// Gradients and both moments in arrays of their own layouts; neighbours only where all four are.
TYPED_TEST(Rectangles, MayLieElsewhereInGradientsAndMoments) {
  using T = TypeParam;
  const Numbers start = random_numbers(400, 1), g = random_numbers(400, 2, 0.1, 1);
  const std::vector<ParameterRange> same = {{0, 100, true}, {100, 50, true}, {150, 50, true}, {300, 100, true}};
  const std::vector<ParameterRange> apart = {
      {0, 100, true, 0, 150, 20}, {100, 50, true, 100, 250, 120}, {150, 50, true, 150, 0, 170}, {300, 100, true, 200, 50, 270}};
  Numbers moved(370, std::numeric_limits<double>::quiet_NaN());
  for (const ParameterRange& range : apart) {
    std::copy_n(g.begin() + range.offset, range.count, moved.begin() + range.gradient);
  }
  for (const auto update : {adamw_update<T>, nadam_update<T>}) {
    const Array<T> p(start), m(Numbers(400)), v(Numbers(400)), gradients(g);
    const Array<T> p_apart(start), m_apart(Numbers(300)), v_apart(Numbers(300)), gradients_apart(moved);
    for (int step = 1; step <= 2; ++step) {
      update({}, p.vector(), m.vector(), v.vector(), gradients.vector(), same, {}, 0.1, step, 1);
      update({}, p_apart.vector(), m_apart.vector(), v_apart.vector(), gradients_apart.vector(), apart, {}, 0.1, step, 1);
    }
    EXPECT_EQ(p_apart.get(), p.get());
    const Numbers first = m.get(), second = v.get(), first_apart = m_apart.get(), second_apart = v_apart.get();
    for (const ParameterRange& range : apart) {
      for (std::int64_t i = 0; i < range.count; ++i) {
        ASSERT_EQ(first_apart[range.first_moment + i], first[range.offset + i]);
        ASSERT_EQ(second_apart[range.second_moment + i], second[range.offset + i]);
      }
    }
    std::vector<ParameterRange> outside = apart;
    outside.back().first_moment = 201;
    EXPECT_THROW(
        update({}, p_apart.vector(), m_apart.vector(), v_apart.vector(), gradients_apart.vector(), outside, {}, 0.1, 3, 1),
        RunError);
    outside = apart;
    outside.back().gradient = 271;
    EXPECT_THROW(
        update({}, p_apart.vector(), m_apart.vector(), v_apart.vector(), gradients_apart.vector(), outside, {}, 0.1, 3, 1),
        RunError);
  }
}

TYPED_TEST(Rectangles, OfMuonMayLieElsewhereInGradientsAndMoment) {
  using T = TypeParam;
  const Numbers start = random_numbers(80, 1), g = random_numbers(80, 2);
  const std::vector<MuonMatrix> same = {{16, 4, 8, true}}, apart = {{16, 4, 8, true, 3}};
  const MuonMemory<T> memory(same);
  const Array<T> p(start), m(Numbers(80)), gradients(g);
  const Array<T> p_apart(start), m_apart(Numbers(35)), gradients_apart(Numbers(g.begin() + 13, g.begin() + 48));
  muon_update<T>({}, p.vector(), m.vector(), gradients.vector(), same, {}, 0.1, 0.02, 1, memory.workspace());
  muon_update<T>({}, p_apart.vector(), m_apart.vector(), gradients_apart.vector(), apart, {}, 0.1, 0.02, 1, memory.workspace());
  EXPECT_EQ(p_apart.get(), p.get());
  const Numbers first = m.get();
  Numbers expected(35, 0.0);
  std::copy_n(first.begin() + 16, 32, expected.begin() + 3);
  EXPECT_EQ(m_apart.get(), expected);
  EXPECT_NE(p.get()[20], start[20]);
}

}  // namespace minipipe::core::testing
