#include "core/kernels/router.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/bf16_arrays.hpp"

namespace minipipe::core::testing {

namespace {

struct Case {
  int rows, experts, choices;
};
// One expert, all experts, one choice, more than one column group.
constexpr Case cases[] = {{5, 1, 1}, {7, 4, 4}, {33, 8, 2}, {9, 5, 1}, {20, 67, 3}, {1, 2, 2}};

using Integers = std::vector<std::int32_t>;

Integers chosen_experts(const Case& z, const Numbers& logits) {
  Integers chosen;
  for (int r = 0; r < z.rows; ++r) {
    Integers order(z.experts);
    for (int e = 0; e < z.experts; ++e) order[e] = e;
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return logits[r * z.experts + a] > logits[r * z.experts + b]; });
    chosen.insert(chosen.end(), order.begin(), order.begin() + z.choices);
  }
  return chosen;
}

Numbers softmax(int rows, int columns, const Numbers& logits) {
  Numbers p(logits.size());
  for (int r = 0; r < rows; ++r) {
    double total = 0;
    for (int e = 0; e < columns; ++e) total += std::exp(logits[r * columns + e]);
    for (int e = 0; e < columns; ++e) p[r * columns + e] = std::exp(logits[r * columns + e]) / total;
  }
  return p;
}

Numbers pair_weights(const Case& z, const Numbers& logits, const Integers& chosen, RouterWeights kind) {
  const Numbers p = softmax(z.rows, z.experts, logits);
  Numbers w(chosen.size());
  for (int r = 0; r < z.rows; ++r) {
    double total = 0;
    for (int i = 0; i < z.choices; ++i) total += p[r * z.experts + chosen[r * z.choices + i]];
    for (int i = r * z.choices; i < (r + 1) * z.choices; ++i) {
      w[i] = p[r * z.experts + chosen[i]] / (kind == RouterWeights::normalised ? total : 1);
    }
  }
  return w;
}

double balance(const Case& z, const Numbers& logits, const Integers& chosen) {
  const Numbers p = softmax(z.rows, z.experts, logits);
  double total = 0;
  for (int e = 0; e < z.experts; ++e) {
    double mean = 0;
    for (int r = 0; r < z.rows; ++r) mean += p[r * z.experts + e] / z.rows;
    total += mean * static_cast<double>(std::count(chosen.begin(), chosen.end(), e)) / static_cast<double>(chosen.size());
  }
  return z.experts * total;
}

Matrix<std::int32_t> integer_matrix(const OwnedVector<std::int32_t>& view, int rows, int columns) {
  return slice_matrix<std::int32_t>(view, 0, rows, columns);
}

template <class T>
struct Routed {
  OwnedVector<std::int32_t> experts;
  Array<T> weights, probabilities;

  Routed(const Case& z, const Numbers& logits, RouterWeights kind)
      : experts(integers(Integers(z.rows * z.choices, -5))), weights(z.rows * z.choices), probabilities(z.rows * z.experts) {
    const Array<T> input(logits);
    router_forward<T>({}, integer_matrix(experts, z.rows, z.choices), weights.matrix(z.rows, z.choices),
                      probabilities.matrix(z.rows, z.experts), input.matrix(z.rows, z.experts), kind);
    Kokkos::fence();
  }
};

}  // namespace

template <class T>
class Router : public ::testing::Test {};
TYPED_TEST_SUITE(Router, Scalars);

TYPED_TEST(Router, ChoosesAndWeighsAsALoopDoes) {
  using T = TypeParam;
  for (const RouterWeights kind : {RouterWeights::normalised, RouterWeights::probabilities}) {
    for (const Case& z : cases) {
      const Numbers logits = random_numbers(z.rows * z.experts, 1, -3, 3);
      const Routed<T> routed(z, logits, kind);
      const Integers chosen = chosen_experts(z, logits);
      EXPECT_EQ(read(routed.experts), chosen);
      // Positive terms: every rounding is relative. 2e-7 is the error of the exponential in float.
      const double relative = rounding<T> * (z.experts + 8) + (sizeof(T) == 4 ? 4e-7 : 0);
      expect_near(routed.probabilities.get(), softmax(z.rows, z.experts, logits), 0, relative);
      expect_near(routed.weights.get(), pair_weights(z, logits, chosen, kind), 0, relative);
    }
  }
}

TYPED_TEST(Router, TiesGoToTheLowerIndexAndNotANumberComesLast) {
  using T = TypeParam;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Case z{4, 4, 3};
  const Numbers logits = {1, 1, 1, 1, 0, 2, 0, 2, nan, 5, nan, 5, nan, nan, nan, nan};
  const Routed<T> routed(z, logits, RouterWeights::normalised);
  EXPECT_EQ(read(routed.experts), (Integers{0, 1, 2, 1, 3, 0, 1, 3, 0, 0, 1, 2}));
}

TYPED_TEST(Router, LargeLogitsStayFinite) {
  using T = TypeParam;
  const Routed<T> routed({1, 3, 2}, {3e4, -3e4, 3e4}, RouterWeights::normalised);
  expect_near(routed.weights.get(), {0.5, 0.5}, 0);
  expect_near(routed.probabilities.get(), {0.5, 0, 0.5}, 1e-37);
}

TYPED_TEST(Router, BalanceLossAgreesWithLoop) {
  using T = TypeParam;
  for (const Case& z : cases) {
    const Numbers logits = random_numbers(z.rows * z.experts, 2, -3, 3);
    const Integers chosen = chosen_experts(z, logits);
    const Routed<T> routed(z, logits, RouterWeights::normalised);
    Integers counts(z.experts);
    for (const int e : chosen) ++counts[e];
    const Array<double> loss(1);
    const Array<T> load(z.experts), mean(z.experts);
    router_balance<T>({}, loss.vector(), load.vector(), mean.vector(), integers(counts),
                      routed.probabilities.matrix(z.rows, z.experts));
    const double expected = balance(z, logits, chosen);
    expect_near(loss.get(), {expected}, 0, rounding<T> * (z.experts + 80) + (sizeof(T) == 4 ? 4e-7 : 0));
    for (int e = 0; e < z.experts; ++e) {
      EXPECT_NEAR(load.get()[e], static_cast<double>(counts[e]) / static_cast<double>(chosen.size()), rounding<T>);
    }
  }
  // Even is one; everything to one expert is E.
  const Array<T> even(Numbers(12, 0.25)), one({1, 0, 0, 0}), load(4), mean(4);
  const Array<double> loss(1);
  router_balance<T>({}, loss.vector(), load.vector(), mean.vector(), integers({2, 2, 1, 1}), even.matrix(3, 4));
  EXPECT_NEAR(loss.get()[0], 1, 1e-7);
  router_balance<T>({}, loss.vector(), load.vector(), mean.vector(), integers({1, 0, 0, 0}), one.matrix(1, 4));
  EXPECT_EQ(loss.get()[0], 4);
}

TYPED_TEST(Router, GradientAgreesWithDifferences) {
  using T = TypeParam;
  constexpr double coefficient = 0.5;
  for (const RouterWeights kind : {RouterWeights::normalised, RouterWeights::probabilities}) {
    for (const Case& z : cases) {
      // Far enough apart that the step of the differences changes no choice.
      const Numbers logits = random_numbers(z.rows * z.experts, 3, -3, 3), dw = random_numbers(z.rows * z.choices, 4);
      const Integers chosen = chosen_experts(z, logits);
      const Routed<T> routed(z, logits, kind);
      Integers counts(z.experts);
      for (const int e : chosen) ++counts[e];
      const Array<double> loss(1);
      const Array<T> load(z.experts), mean(z.experts), weights_gradient(dw), dz(logits.size());
      router_balance<T>({}, loss.vector(), load.vector(), mean.vector(), integers(counts),
                        routed.probabilities.matrix(z.rows, z.experts));
      const auto backward = [&](ConstVector<T> loads, double factor) {
        router_backward<T>({}, dz.matrix(z.rows, z.experts), weights_gradient.matrix(z.rows, z.choices),
                           integer_matrix(routed.experts, z.rows, z.choices), routed.weights.matrix(z.rows, z.choices),
                           routed.probabilities.matrix(z.rows, z.experts), loads, static_cast<T>(factor), kind);
        return dz.get();
      };
      const double tolerance = rounding<T> * (z.experts + 16) * 4 + 3e-8 + (sizeof(T) == 4 ? 1e-6 : 0);
      expect_near(backward(load.vector(), coefficient),
                  differences(logits,
                              [&](const Numbers& at) {
                                return dot(dw, pair_weights(z, at, chosen, kind)) + coefficient * balance(z, at, chosen);
                              }),
                  tolerance);
      expect_near(backward({}, 0),
                  differences(logits, [&](const Numbers& at) { return dot(dw, pair_weights(z, at, chosen, kind)); }),
                  tolerance);
    }
  }
}

// Wide inputs, and a result that is rounded once.
TEST(RouterBf16, GradientIsThatOfFloatRoundedOnce) {
  for (const RouterWeights kind : {RouterWeights::normalised, RouterWeights::probabilities}) {
    for (const Case& z : cases) {
      const Numbers logits = random_numbers(z.rows * z.experts, 3, -3, 3), dw = random_numbers(z.rows * z.choices, 4);
      const Routed<float> routed(z, logits, kind);
      const Array<float> load(random_numbers(z.experts, 5, 0, 1)), weights_gradient(dw), exact(logits.size());
      const Array<bf16> rounded(logits.size());
      const auto backward = [&]<class T>(const Array<T>& dz) {
        router_backward<T>({}, dz.matrix(z.rows, z.experts), weights_gradient.matrix(z.rows, z.choices),
                           integer_matrix(routed.experts, z.rows, z.choices), routed.weights.matrix(z.rows, z.choices),
                           routed.probabilities.matrix(z.rows, z.experts), load.vector(), 0.5F, kind);
      };
      backward(exact);
      backward(rounded);
      // The compiler may contract the two differently.
      expect_rounded(rounded.get(), exact.get(), 4 * rounding<float>);
    }
  }
}

TEST(RouterShapes, MismatchThrows) {
  const Array<float> logits(6), weights(4), p(6);
  const auto experts = integers(Integers(8, 0));
  const auto forward = [&](int choices) {
    const Array<float> w(2 * choices);
    router_forward<float>({}, integer_matrix(experts, 2, choices), w.matrix(2, choices), p.matrix(2, 3), logits.matrix(2, 3));
  };
  EXPECT_NO_THROW(forward(3));
  EXPECT_THROW(forward(4), RunError);
  EXPECT_THROW(forward(0), RunError);
}

}  // namespace minipipe::core::testing
