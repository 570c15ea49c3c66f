#include "core/optim/adamw.hpp"
#include "unit_tests/core/kernels/arrays.hpp"
#include "unit_tests/core/kernels/optimizer_steps.hpp"

namespace minipipe::core::testing {

template <class T>
class NAdam : public ::testing::Test {};
TYPED_TEST_SUITE(NAdam, Scalars);

TYPED_TEST(NAdam, AgreesWithLoopOverSeveralSteps) {
  using T = TypeParam;
  const auto direction = [](double m, double v, double gradient, int step, const AdamWOptions& by) {
    const double m_hat =
        by.beta1 * m / (1 - std::pow(by.beta1, step + 1)) + (1 - by.beta1) * gradient / (1 - std::pow(by.beta1, step));
    const double v_hat = v / (1 - std::pow(by.beta2, step));
    return m_hat / (std::sqrt(v_hat) + by.epsilon);
  };
  // As for AdamW; directions stay below 2.
  expect_steps_agree<T>([](const auto&... arguments) { nadam_update<T>({}, arguments...); }, direction, 80);
}

// Second moments packed without those of a part that has none.
TYPED_TEST(NAdam, SecondMomentsMayLieElsewhere) {
  using T = TypeParam;
  const Numbers start = random_numbers(400, 1), g = random_numbers(400, 2, 0.1, 1);
  const std::vector<ParameterRange> same = {{0, 100, true}, {300, 100, true}};
  const std::vector<ParameterRange> packed = {{0, 100, true, 0}, {300, 100, true, 100}};
  const Array<T> gradients(g);
  for (const auto update : {adamw_update<T>, nadam_update<T>}) {
    const Array<T> p(start), m(Numbers(400)), v(Numbers(400)), p_packed(start), m_packed(Numbers(400)), v_packed(Numbers(200));
    update({}, p.vector(), m.vector(), v.vector(), gradients.vector(), same, {}, 0.1, 1, 1);
    update({}, p_packed.vector(), m_packed.vector(), v_packed.vector(), gradients.vector(), packed, {}, 0.1, 1, 1);
    EXPECT_EQ(p.get(), p_packed.get());
    EXPECT_EQ(m.get(), m_packed.get());
    Numbers expected = v.get();
    expected.erase(expected.begin() + 100, expected.begin() + 300);
    EXPECT_EQ(v_packed.get(), expected);
    EXPECT_NE(p.get()[350], start[350]);
    EXPECT_EQ(p.get()[200], start[200]);
  }
}

// After a gradient of the opposite sign Nesterov's momentum turns round sooner.
TEST(NAdamDirection, LooksAhead) {
  const std::vector<ParameterRange> ranges = {{0, 8, false}};
  const Array<double> gradients(Numbers(8, 0.5)), later(Numbers(8, -0.5));
  Numbers second_steps;
  for (const auto update : {adamw_update<double>, nadam_update<double>}) {
    const Array<double> p(Numbers(8)), m(Numbers(8)), v(Numbers(8));
    update({}, p.vector(), m.vector(), v.vector(), gradients.vector(), ranges, {}, 0.1, 1, 1);
    const double before = p.get()[0];
    EXPECT_LT(before, 0);
    update({}, p.vector(), m.vector(), v.vector(), later.vector(), ranges, {}, 0.1, 2, 1);
    second_steps.push_back(p.get()[0] - before);
  }
  EXPECT_GT(second_steps[1], 2 * second_steps[0]);
  EXPECT_GT(second_steps[0], 0);
}

}  // namespace minipipe::core::testing
