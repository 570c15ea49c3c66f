#include "core/kernels/expert_dispatch.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/kernels/bf16_arrays.hpp"

namespace minipipe::core::testing {

namespace {

using Integers = std::vector<std::int32_t>;

struct Case {
  int rows, choices, experts, columns;
};
// One expert, all experts, several blocks of rows, experts that no row chose (see below), no rows.
constexpr Case cases[] = {{5, 1, 1, 3},    {7, 4, 4, 5},  {130, 2, 8, 7}, {66, 1, 5, 33},
                          {200, 3, 67, 2}, {1, 2, 3, 70}, {0, 2, 3, 4}};

// Different experts for each row; the last expert of each case with more than k experts stays empty.
Integers choose(const Case& z, unsigned seed) {
  std::mt19937 engine(seed);
  Integers chosen;
  for (int r = 0; r < z.rows; ++r) {
    Integers order(std::max(z.experts - 1, z.choices));
    for (std::size_t e = 0; e < order.size(); ++e) order[e] = static_cast<std::int32_t>(e);
    for (std::size_t e = order.size(); e > 1; --e) std::swap(order[e - 1], order[engine() % e]);
    chosen.insert(chosen.end(), order.begin(), order.begin() + z.choices);
  }
  return chosen;
}

struct Reference {
  Integers counts, offsets, slots, pairs;

  Reference(const Case& z, const Integers& chosen, std::int64_t capacity)
      : counts(z.experts), offsets(1), slots(chosen.size(), -1), pairs(chosen.size(), -1) {
    std::int32_t next = 0;
    for (int e = 0; e < z.experts; ++e) {
      for (std::size_t pair = 0; pair < chosen.size(); ++pair) {
        if (chosen[pair] != e) continue;
        if (capacity == 0 || counts[e] < capacity) {
          slots[pair] = next;
          pairs[next++] = static_cast<std::int32_t>(pair);
        }
        ++counts[e];
      }
      offsets.push_back(next);
    }
  }
};

struct Plan {
  OwnedVector<std::int32_t> counts, offsets, slots, pairs, workspace, experts;
  ExpertPlan views;

  Plan(const Case& z, const Integers& chosen, std::int64_t capacity)
      : counts(integers(Integers(z.experts, -7))),
        offsets(integers(Integers(z.experts + 1, -7))),
        slots(integers(Integers(chosen.size(), -7))),
        pairs(integers(Integers(chosen.size(), -7))),
        workspace(integers(Integers(expert_workspace(z.rows, z.experts), -7))),
        experts(integers(chosen)),
        views{counts, offsets, slots, pairs} {
    plan_experts({}, views, workspace, slice_matrix<std::int32_t>(experts, 0, z.rows, z.choices), capacity);
  }
};

// What every capacity is tried with: none, one that drops, one that just fits.
const std::int64_t capacities[] = {0, 1, 3, 1000};

Numbers combine(const Case& z, const Numbers& expert_out, const Numbers& weights, const Integers& slots) {
  Numbers out(z.rows * z.columns);
  for (int pair = 0; pair < z.rows * z.choices; ++pair) {
    for (int c = 0; slots[pair] >= 0 && c < z.columns; ++c) {
      out[pair / z.choices * z.columns + c] += weights[pair] * expert_out[slots[pair] * z.columns + c];
    }
  }
  return out;
}

}  // namespace

TEST(ExpertPlan, IsTheStableSortByExpert) {
  for (const Case& z : cases) {
    const Integers chosen = choose(z, 1);
    for (const std::int64_t capacity : capacities) {
      const Plan plan(z, chosen, capacity);
      const Reference expected(z, chosen, capacity);
      EXPECT_EQ(read(plan.counts), expected.counts);
      EXPECT_EQ(read(plan.offsets), expected.offsets);
      EXPECT_EQ(read(plan.slots), expected.slots);
      EXPECT_EQ(read(plan.pairs), expected.pairs);
      Integers host;
      read_offsets({}, host, plan.offsets);
      EXPECT_EQ(host, expected.offsets);
    }
  }
}

TEST(ExpertPlan, AllRowsToOneExpertAndTheCapacityKeepsTheFirst) {
  const Case z{100, 1, 3, 1};
  const Plan plan(z, Integers(100, 1), 30);
  EXPECT_EQ(read(plan.counts), (Integers{0, 100, 0}));
  EXPECT_EQ(read(plan.offsets), (Integers{0, 0, 30, 30}));
  const Integers slots = read(plan.slots);
  for (int row = 0; row < 100; ++row) EXPECT_EQ(slots[row], row < 30 ? row : -1);
}

TEST(ExpertPlan, Capacity) {
  EXPECT_EQ(expert_capacity(1, 8, 2, 4), 4);
  EXPECT_EQ(expert_capacity(1e300, 8, 2, 4), INT32_MAX);
  EXPECT_EQ(expert_capacity(1.25, 8, 2, 4), 5);
  EXPECT_EQ(expert_capacity(1.25, 9, 2, 4), 6);
  EXPECT_EQ(expert_capacity(1.1, 100, 1, 1), 110);  // 1.1 * 100 = 110.00000000000001
  EXPECT_EQ(expert_capacity(0.01, 3, 1, 4), 1);
}

TEST(ExpertPlan, ShapesThatDoNotFitThrow) {
  const Case z{4, 2, 3, 1};
  const Integers chosen = choose(z, 1);
  const Plan plan(z, chosen, 0);
  const auto experts = slice_matrix<std::int32_t>(plan.experts, 0, z.rows, z.choices);
  EXPECT_THROW(plan_experts({}, plan.views, slice<std::int32_t>(plan.workspace, 0, 2), experts), RunError);
  EXPECT_THROW(plan_experts({}, plan.views, plan.workspace, experts, -1), RunError);
  const Array<double> rows(4), gathered(8);
  EXPECT_NO_THROW(gather_rows<double>({}, gathered.matrix(8, 1), rows.matrix(4, 1), plan.views));
  EXPECT_THROW(gather_rows<double>({}, gathered.matrix(4, 2), rows.matrix(4, 1), plan.views), RunError);
}

template <class T>
class ExpertRows : public ::testing::Test {};
TYPED_TEST_SUITE(ExpertRows, Scalars);

TYPED_TEST(ExpertRows, GatherCopiesAndItsBackwardSums) {
  using T = TypeParam;
  for (const Case& z : cases) {
    const Integers chosen = choose(z, 2);
    const int pairs = z.rows * z.choices;
    const Numbers x = random_numbers(z.rows * z.columns, 3), dg = random_numbers(pairs * z.columns, 4);
    for (const std::int64_t capacity : capacities) {
      const Plan plan(z, chosen, capacity);
      const Reference reference(z, chosen, capacity);
      const Array<T> input(x), gathered(Numbers(pairs * z.columns, 9)), gradient(dg), dx(x.size()), added(x);
      gather_rows<T>({}, gathered.matrix(pairs, z.columns), input.matrix(z.rows, z.columns), plan.views);
      Numbers expected(pairs * z.columns, 9);
      for (int i = 0; i < pairs * z.columns; ++i) {
        const int pair = reference.pairs[i / z.columns];
        if (pair >= 0) expected[i] = x[pair / z.choices * z.columns + i % z.columns];
      }
      EXPECT_EQ(gathered.get(), expected);

      gather_rows_backward<T>({}, dx.matrix(z.rows, z.columns), gradient.matrix(pairs, z.columns), plan.views, false);
      const Numbers sums = combine(z, dg, Numbers(pairs, 1), reference.slots);
      expect_near(dx.get(), sums, z.choices * z.choices * rounding<T>);
      gather_rows_backward<T>({}, added.matrix(z.rows, z.columns), gradient.matrix(pairs, z.columns), plan.views, true);
      expected = sums;
      for (std::size_t i = 0; i < x.size(); ++i) expected[i] += x[i];
      expect_near(added.get(), expected, (z.choices + 1) * (z.choices + 1) * rounding<T>);
    }
  }
}

TYPED_TEST(ExpertRows, CombineAndItsGradientsAgreeWithLoop) {
  using T = TypeParam;
  for (const Case& z : cases) {
    const Integers chosen = choose(z, 5);
    const int pairs = z.rows * z.choices;
    const Numbers y = random_numbers(pairs * z.columns, 6), w = random_numbers(pairs, 7, 0, 1);
    const Numbers dy = random_numbers(z.rows * z.columns, 8);
    for (const std::int64_t capacity : capacities) {
      const Plan plan(z, chosen, capacity);
      const Reference reference(z, chosen, capacity);
      // Slots that no pair has are not to be read: not a number there must not show.
      Numbers holes = y;
      for (int i = reference.offsets.back() * z.columns; i < pairs * z.columns; ++i) holes[i] = std::nan("");
      const Array<T> expert_out(holes), weights(w), gradient(dy), out(dy.size()), dweights(w.size());
      const Array<T> dexpert(Numbers(y.size(), 9));
      combine_rows<T>({}, out.matrix(z.rows, z.columns), expert_out.matrix(pairs, z.columns), weights.matrix(z.rows, z.choices),
                      plan.views);
      const double tolerance = z.choices * (z.choices + 1) * rounding<T>;
      expect_near(out.get(), combine(z, y, w, reference.slots), tolerance);

      combine_rows_backward<T>({}, dexpert.matrix(pairs, z.columns), dweights.matrix(z.rows, z.choices),
                               gradient.matrix(z.rows, z.columns), expert_out.matrix(pairs, z.columns),
                               weights.matrix(z.rows, z.choices), plan.views);
      // The output is linear in each of the two: the gradients need no differences.
      Numbers expected_y(y.size(), 9), expected_w(w.size());
      for (int pair = 0; pair < pairs; ++pair) {
        const int slot = reference.slots[pair], row = pair / z.choices;
        for (int c = 0; slot >= 0 && c < z.columns; ++c) {
          expected_y[slot * z.columns + c] = w[pair] * dy[row * z.columns + c];
          expected_w[pair] += y[slot * z.columns + c] * dy[row * z.columns + c];
        }
      }
      expect_near(dexpert.get(), expected_y, 0, rounding<T>);
      expect_near(dweights.get(), expected_w, (z.columns + 1) * z.columns * rounding<T>);

      // In place of the experts' output.
      const Array<T> again(w.size());
      combine_rows_backward<T>({}, expert_out.matrix(pairs, z.columns), again.matrix(z.rows, z.choices),
                               gradient.matrix(z.rows, z.columns), expert_out.matrix(pairs, z.columns),
                               weights.matrix(z.rows, z.choices), plan.views);
      EXPECT_EQ(again.exact(), dweights.exact());
      const std::vector<T> in_place = expert_out.exact(), apart = dexpert.exact();
      for (int i = 0; i < reference.offsets.back() * z.columns; ++i) EXPECT_EQ(in_place[i], apart[i]);
    }
  }
}

TEST(ExpertRowsBf16, AreThoseOfDoubleRoundedOnce) {
  for (const Case& z : cases) {
    const Integers chosen = choose(z, 9);
    const int pairs = z.rows * z.choices;
    const Numbers x = random_bf16(z.rows * z.columns, 3), y = random_bf16(pairs * z.columns, 4),
                  w = random_numbers(pairs, 5, 0, 1);
    for (const std::int64_t capacity : capacities) {
      const Plan plan(z, chosen, capacity);
      const auto run = [&]<class T>(T) {
        const Array<T> input(x), values(y), gathered(Numbers(y.size(), 9)), sums(x), out(x.size()),
            gradient(Numbers(y.size(), 9));
        const Array<Compute<T>> weights(w), weights_gradient(w.size());
        const auto rows = [&](const Array<T>& array) { return array.matrix(z.rows, z.columns); };
        const auto slots = [&](const Array<T>& array) { return array.matrix(pairs, z.columns); };
        gather_rows<T>({}, slots(gathered), rows(input), plan.views);
        gather_rows_backward<T>({}, rows(sums), slots(values), plan.views, true);
        combine_rows<T>({}, rows(out), slots(values), weights.matrix(z.rows, z.choices), plan.views);
        combine_rows_backward<T>({}, slots(gradient), weights_gradient.matrix(z.rows, z.choices), rows(input), slots(values),
                                 weights.matrix(z.rows, z.choices), plan.views);
        return std::array<Numbers, 5>{gathered.get(), sums.get(), out.get(), gradient.get(), weights_gradient.get()};
      };
      const auto narrow = run(bf16()), wide = run(double());
      EXPECT_EQ(narrow[0], wide[0]);
      const double tolerance = (z.choices + 1) * (z.choices + 1) * rounding<float>;
      for (int i = 1; i < 4; ++i) expect_rounded(narrow[i], wide[i], tolerance);
      expect_near(narrow[4], wide[4], (z.columns + 1) * z.columns * rounding<float>);
    }
  }
}

}  // namespace minipipe::core::testing
