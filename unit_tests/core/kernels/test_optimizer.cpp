#include "core/kernels/reduce.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/learning_rate.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/arrays.hpp"
#include "unit_tests/core/kernels/optimizer_steps.hpp"

namespace minipipe::core::testing {

template <class T>
class AdamW : public ::testing::Test {};
TYPED_TEST_SUITE(AdamW, Scalars);

TYPED_TEST(AdamW, AgreesWithLoopOverSeveralSteps) {
  using T = TypeParam;
  const auto direction = [](double m, double v, double, int step, const AdamWOptions& by) {
    const double m_hat = m / (1 - std::pow(by.beta1, step)), v_hat = v / (1 - std::pow(by.beta2, step));
    return m_hat / (std::sqrt(v_hat) + by.epsilon);
  };
  // Per step: a direction near 1 with some 20 roundings (the coefficients' own included) and one rounding of p.
  expect_steps_agree<T>([](const auto&... arguments) { adamw_update<T>({}, arguments...); }, direction, 40);
}

// More ranges than one launch takes, of alternating decay; to the last bit what each gives alone.
TYPED_TEST(AdamW, ManyRangesAreUpdatedAsEachAlone) {
  using T = TypeParam;
  std::vector<ParameterRange> ranges;
  std::int64_t end = 0;
  for (int i = 0; i < 120; ++i) {
    const std::int64_t count = i == 50 ? 9000 : i == 60 ? 4096 : 16 * (i % 7);
    ranges.push_back({end, count, i % 2 == 0});
    end += count + (i % 5 == 0 ? 16 : 0);
  }
  const auto count = static_cast<std::size_t>(end);
  const Numbers p = random_numbers(count, 1), m = random_numbers(count, 2), v = random_numbers(count, 3, 0.1, 1);
  const Array<T> gradients(random_numbers(count, 4));
  const Array<T> parameters(p), first(m), second(v), parameters_alone(p), first_alone(m), second_alone(v);
  adamw_update<T>({}, parameters.vector(), first.vector(), second.vector(), gradients.vector(), ranges, {}, 0.01, 3);
  for (const ParameterRange& range : ranges) {
    adamw_update<T>({}, parameters_alone.vector(), first_alone.vector(), second_alone.vector(), gradients.vector(),
                    std::span(&range, 1), {}, 0.01, 3);
  }
  EXPECT_EQ(parameters.exact(), parameters_alone.exact());
  EXPECT_EQ(first.exact(), first_alone.exact());
  EXPECT_EQ(second.exact(), second_alone.exact());
  EXPECT_NE(parameters.get(), p);
}

// Squares and copies in the same pass: the step is to the last bit that without them.
TYPED_TEST(AdamW, ExtrasChangeNothingAndAreExact) {
  using T = TypeParam;
  std::vector<ParameterRange> ranges;
  std::int64_t end = 0;
  for (int i = 0; i < 60; ++i) {
    const std::int64_t count = i == 50 ? 9005 : i == 30 ? 4096 : 16 * (i % 7) + i % 3;
    ranges.push_back({end, count, i % 2 == 0});
    end += count;
  }
  const auto count = static_cast<std::size_t>(end);
  const Numbers p = random_numbers(count, 1), m = random_numbers(count, 2), v = random_numbers(count, 3, 0.1, 1);
  const Array<T> gradients(random_numbers(count, 4));
  const Array<double> squares(ranges.size()), expected(ranges.size()), workspace(100);
  const Array<bf16> copies(Numbers(count, 7.0));
  std::vector<Vector<bf16>> places;
  std::vector<SquareRectangle<T>> rectangles;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::int64_t offset = ranges[i].offset;
    places.push_back(i % 4 == 3 ? Vector<bf16>() : slice<bf16>(copies.vector(), offset, ranges[i].count));
    rectangles.push_back({gradients.vector().data() + offset, 1, ranges[i].count, 0});
  }
  for (const bool nesterov : {false, true}) {
    const Array<T> parameters(p), first(m), second(v), plain(p), plain_first(m), plain_second(v);
    update_with_extras<T>({}, nesterov, parameters.vector(), first.vector(), second.vector(), gradients.vector(), ranges, {},
                          0.01, 3, 0.5, {squares.vector(), workspace.vector(), places});
    (nesterov ? nadam_update<T> : adamw_update<T>)({}, plain.vector(), plain_first.vector(), plain_second.vector(),
                                                   gradients.vector(), ranges, {}, 0.01, 3, 0.5);
    EXPECT_EQ(parameters.exact(), plain.exact());
    EXPECT_EQ(first.exact(), plain_first.exact());
    EXPECT_EQ(second.exact(), plain_second.exact());
    sums_of_squares<T>({}, expected.vector(), std::span<const SquareRectangle<T>>(rectangles), workspace.vector());
    EXPECT_EQ(squares.exact(), expected.exact());
    const std::vector<bf16> copied = copies.exact();
    const std::vector<T> values = parameters.exact();
    for (std::size_t r = 0; r < ranges.size(); ++r) {
      for (std::int64_t i = ranges[r].offset; i < ranges[r].offset + ranges[r].count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        ASSERT_EQ(copied[at].bits, bf16(r % 4 == 3 ? 7.0F : static_cast<float>(values[at])).bits) << i;
      }
    }
  }
}

TYPED_TEST(AdamW, RefusesARangeOutsideTheArrays) {
  using T = TypeParam;
  const Array<T> a(Numbers(4)), b(Numbers(4)), c(Numbers(4)), d(Numbers(4));
  const std::vector<ParameterRange> ranges = {{2, 3, false}};
  EXPECT_THROW(adamw_update<T>({}, a.vector(), b.vector(), c.vector(), d.vector(), ranges, {}, 0.1, 1), RunError);
}

TEST(LearningRate, WarmsUpThenFollowsHalfACosine) {
  const LearningRateOptions options{1.0, 0.1, 4, 24};
  EXPECT_DOUBLE_EQ(learning_rate(0, options), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(3, options), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(4, options), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(14, options), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(24, options), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(1000, options), 0.1);
  for (int step = 4; step < 24; ++step) {
    EXPECT_GT(learning_rate(step, options), learning_rate(step + 1, options));
  }
}

TEST(LearningRate, NoWarmUpStartsAtThePeakAndAllWarmUpNeverDividesByZero) {
  EXPECT_DOUBLE_EQ(learning_rate(0, {2.0, 0.5, 0, 10}), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(9, {2.0, 0.5, 10, 10}), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(10, {2.0, 0.5, 10, 10}), 0.5);
}

}  // namespace minipipe::core::testing
