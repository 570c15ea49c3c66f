#include "core/model/state_space_branch.hpp"
#include "unit_tests/core/model/reference_state_space.hpp"

namespace minipipe::core::testing {

namespace {

using namespace state_space;

constexpr double start = 0.25;  // of the gradients: the branch adds to them

// A branch by itself, in memory that holds nothing but NaN.
template <class T>
class Branch {
 public:
  using C = Compute<T>;

  Branch(const Case& z, const Parts& p, Recompute recompute = Recompute::none, double dropout = 0)
      : recompute_(recompute), rows_(z.shape.rows()) {
    context.model = z.model;
    context.model.dropout = dropout;
    context.shape = z.shape;
    context.seed = 3;
    for (int i = 0; i < parts; ++i) {
      matrices_.emplace_back(p[i]);
      vectors_.emplace_back(p[i]);
      gradients_.emplace_back(Numbers(p[i].size(), start));
    }
    BlockLayout layout;
    layout.per_wide = elements_per_wide<T>;
    at_ = state_space_activations(layout, context.model, context.shape, recompute);
    kept = layout.slot.end();
    work_at_ = state_space_gradients(layout, context.model, context.shape);
    slot_ = Array<C>(layout.slot.end());
    workspace_size_ = layout.workspace.end();
    scratch_size_ = layout.scratch.end();
    renew(true, true);
    const Matrix<T> to = memory().matrix(at_.input, context.model.width);
    Kokkos::deep_copy(to, matrix(input));
  }

  Numbers forward() {
    const Array<T> result(rows_ * context.model.width);
    state_space_branch_forward<T>(context, block, weights(), at_, memory(), result.matrix(rows_, context.model.width));
    Numbers values = result.get();
    // Other microbatches use the same workspace and scratch before the backward, other blocks the scratch between its halves.
    renew(true, true);
    return values;
  }
  // Of dot(`by`, output), each less its start.
  Parts backward(const Numbers& by) {
    const Array<T> gradient(by);
    if (recompute_ == Recompute::block) state_space_activate<T>(context, weights(), at_, memory());
    state_space_branch_backward_input<T>(context, block, weights(), at_, work_at_, memory(),
                                         gradient.matrix(rows_, context.model.width));
    renew(false, true);
    state_space_branch_backward_weight<T>(context, gradients(), at_, work_at_, memory());
    Parts result;
    result[input] = gradient.get();
    for (int i = norm; i < parts; ++i) {
      result[i] = gradients_[i].get();
      for (double& value : result[i]) value -= start;
    }
    return result;
  }

  LayerContext context;
  std::size_t kept = 0;

 private:
  static constexpr int block = 1;

  int columns(int part) const {
    return part == conv ? context.model.conv_width : part == out ? state_width(context.model) : context.model.width;
  }
  Matrix<T> matrix(Part part) const {
    return matrices_[part].matrix(static_cast<std::int64_t>(matrices_[part].vector().size()) / columns(part), columns(part));
  }
  StateSpaceTensors<T> weights() const {
    return {{vectors_[norm].vector(), {}},
            matrix(in),
            matrix(conv),
            vectors_[conv_bias].vector(),
            {vectors_[a_log].vector(), vectors_[d].vector(), vectors_[dt_bias].vector()},
            vectors_[gated_norm].vector(),
            matrix(out)};
  }
  StateSpaceTensors<C> gradients() const {
    const auto vector = [&](Part part) { return gradients_[part].vector(); };
    const auto matrix = [&](Part part) {
      return gradients_[part].matrix(static_cast<std::int64_t>(vector(part).size()) / columns(part), columns(part));
    };
    return {{vector(norm), {}}, matrix(in), matrix(conv), vector(conv_bias), {vector(a_log), vector(d), vector(dt_bias)},
            vector(gated_norm), matrix(out)};
  }
  BlockMemory<T> memory() const { return {slot_.vector(), workspace_.vector(), scratch_.vector(), rows_}; }
  void renew(bool workspace, bool scratch) {
    if (workspace) workspace_ = Array<C>(workspace_size_);
    if (scratch) scratch_ = Array<C>(scratch_size_);
  }

  Recompute recompute_;
  int rows_;
  std::vector<Array<T>> matrices_;
  std::vector<Array<C>> vectors_, gradients_;
  StateSpaceActivations at_;
  StateSpaceGradients work_at_;
  Array<C> slot_{0}, workspace_{0}, scratch_{0};
  std::size_t workspace_size_ = 0, scratch_size_ = 0;
};

double largest(const Numbers& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

// Each part within a fraction of its largest value.
void expect_close(const Parts& actual, const Parts& expected, double fraction) {
  for (int i = 0; i < parts; ++i) {
    SCOPED_TRACE("part " + std::to_string(i));
    expect_near(actual[i], expected[i], fraction * largest(expected[i]));
  }
}

// Differences of fourth order: the gated norm bends sharply where its input is small.
Numbers sharp_differences(Numbers at, const std::function<double(const Numbers&)>& function) {
  constexpr double step = 2e-5;
  Numbers result(at.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double value = at[i];
    const auto moved = [&](double by) {
      at[i] = value + by;
      return function(at);
    };
    result[i] = (8 * (moved(step) - moved(-step)) - (moved(2 * step) - moved(-2 * step))) / (12 * step);
    at[i] = value;
  }
  return result;
}

Numbers output_weights(const Case& z) { return random_bf16(z.shape.rows() * z.model.width, 90); }

}  // namespace

TEST(StateSpaceBranch, AgreesWithItsFormulas) {
  for (const int groups : {1, 2}) {
    const Case z = example(groups);
    const Parts p = random_parts(z, 10);
    expect_near(Branch<double>(z, p).forward(), reference(z, p), 1e-13);
  }
}

TEST(StateSpaceBranch, GradientsAgreeWithDifferences) {
  for (const int groups : {1, 2}) {
    const Case z = example(groups);
    const Parts p = random_parts(z, 20);
    const Numbers by = output_weights(z);
    Branch<double> branch(z, p);
    branch.forward();
    const Parts gradients = branch.backward(by);
    for (int i = 0; i < parts; ++i) {
      SCOPED_TRACE("part " + std::to_string(i));
      Parts moved = p;
      const Numbers expected = sharp_differences(p[i], [&](const Numbers& at) {
        moved[i] = at;
        return dot(by, reference(z, moved));
      });
      expect_near(gradients[i], expected, 1e-8, 1e-8);
    }
  }
}

// The masks enter as factors of the branch's output.
TEST(StateSpaceBranch, DropoutActsOnTheBranchAlone) {
  const Case z = example(1);
  const Parts p = random_parts(z, 30);
  const Numbers by = output_weights(z);
  Branch<double> plain(z, p), dropping(z, p, Recompute::none, 0.25);
  const Numbers full = plain.forward(), some = dropping.forward();
  Numbers masked = by;
  int dropped = 0;
  for (std::size_t i = 0; i < by.size(); ++i) {
    const double added = full[i] - p[input][i], factor = std::round((some[i] - p[input][i]) / added) > 0 ? 4.0 / 3 : 0;
    ASSERT_NEAR(some[i], p[input][i] + factor * added, 1e-12);
    dropped += factor == 0 ? 1 : 0;
    masked[i] *= factor;
  }
  EXPECT_GT(dropped, 0);
  EXPECT_LT(dropped, static_cast<int>(by.size()));
  Parts expected = plain.backward(masked);
  for (std::size_t i = 0; i < by.size(); ++i) expected[input][i] += by[i] - masked[i];
  expect_close(dropping.backward(by), expected, 1e-12);
}

template <class T>
class StateSpaceBranchTypes : public ::testing::Test {};
using StoredTypes = ::testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(StateSpaceBranchTypes, StoredTypes);

TYPED_TEST(StateSpaceBranchTypes, RecomputationGivesTheSameBits) {
  const Case z = example(2);
  const Parts p = random_parts(z, 40);
  Branch<TypeParam> keeping(z, p, Recompute::none, 0.25), again(z, p, Recompute::block, 0.25);
  EXPECT_EQ(keeping.forward(), again.forward());
  EXPECT_EQ(keeping.backward(output_weights(z)), again.backward(output_weights(z)));
  EXPECT_EQ(again.kept, padded((z.shape.rows() * z.model.width - 1) / elements_per_wide<TypeParam> + 1));
  EXPECT_EQ(keeping.kept, Branch<TypeParam>(z, p, Recompute::attention).kept);
}

TYPED_TEST(StateSpaceBranchTypes, SequencesDoNotMeet) {
  const Case z = example(1);
  Parts p = random_parts(z, 50);
  const std::size_t first = p[input].size() / 2;
  const Numbers before = Branch<TypeParam>(z, p).forward();
  for (std::size_t i = 0; i < first; ++i) p[input][i] *= -2;
  const Numbers after = Branch<TypeParam>(z, p).forward();
  EXPECT_NE(Numbers(before.begin(), before.begin() + first), Numbers(after.begin(), after.begin() + first));
  EXPECT_EQ(Numbers(before.begin() + first, before.end()), Numbers(after.begin() + first, after.end()));
}

// About ten roundings on the way of each value. In float each exponential of a step adds three more, which a sequence collects.
TEST(StateSpaceBranch, StoredTypesAreCloseToDouble) {
  const auto compare = []<class T>(T, double fraction) {
    for (const int groups : {1, 2}) {
      const Case z = example(groups);
      const Parts p = random_parts(z, 60);
      const Numbers by = output_weights(z);
      Branch<T> branch(z, p);
      Branch<double> exact(z, p);
      const Numbers expected = exact.forward();
      expect_near(branch.forward(), expected, fraction * largest(expected));
      expect_close(branch.backward(by), exact.backward(by), fraction);
    }
  };
  compare(float(), 40 * rounding<float>);
  compare(bf16(), 10 * bf16_rounding);
}

TEST(StateSpaceBranch, TensorsInTheListsOrder) {
  const Case z = example(1);
  const Parts p = random_parts(z, 70);
  const int rows[parts] = {
      0, 1, static_cast<int>(p[in].size()) / z.model.width, conv_features(z.model), 1, 1, 1, 1, 1, z.model.width};
  std::vector<ParameterEntry> entries;
  std::size_t end = 0;
  for (int i = norm; i < parts; ++i) {
    ParameterEntry entry;
    entry.size = p[i].size();
    const int columns = static_cast<int>(entry.size) / rows[i];
    entry.shape = rows[i] > 1 ? std::vector<int>{rows[i], columns} : std::vector<int>{columns};
    entry.offset = end;
    end += padded(entry.size);
    entries.push_back(entry);
  }
  const OwnedVector<double> buffer("buffer", end);
  TensorCursor<double> next(buffer, z.model, entries);
  const StateSpaceTensors<double> tensors = state_space_tensors(next);
  const double* places[] = {tensors.norm.weight.data(), tensors.in.data(),           tensors.conv.data(),
                            tensors.conv_bias.data(),   tensors.scan.dt_bias.data(), tensors.scan.a_log.data(),
                            tensors.scan.d.data(),      tensors.gated_norm.data(),   tensors.out.data()};
  for (std::size_t i = 0; i < entries.size(); ++i) EXPECT_EQ(places[i], buffer.data() + entries[i].offset) << i;
  EXPECT_EQ(tensors.conv.extent(0), conv_features(z.model));
  EXPECT_EQ(tensors.out.extent(1), state_width(z.model));
}

}  // namespace minipipe::core::testing
