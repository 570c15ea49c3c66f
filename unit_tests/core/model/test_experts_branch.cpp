#include "core/model/experts_branch.hpp"
#include "unit_tests/core/kernels/bf16_arrays.hpp"
#include "unit_tests/core/model/reference_experts.hpp"

namespace minipipe::core::test {
namespace {

using testing::differences;
using testing::expect_near;
using testing::random_bf16;
using testing::read;

constexpr int block = 3;

ModelConfig model_of(const ExpertsCase& z) {
  ModelConfig model;
  model.family = "hybrid";
  model.width = z.width;
  model.dropout = z.dropout;
  model.experts = z.experts;
  model.expert_choices = z.choices;
  model.expert_hidden = z.hidden;
  model.expert_capacity = z.capacity;
  return model;
}

LayerContext context_of(const ExpertsCase& z, int microbatch) {
  LayerContext context;
  context.model = model_of(z);
  context.shape = {z.batch, z.sequence};
  context.seed = 5;
  context.microbatch = microbatch;
  context.balance_scale = z.balance_scale;
  return context;
}

// Numbers that bf16 holds exactly.
struct Inputs {
  Numbers x, parameters, gradient, before;  // the last: the parameters' gradients so far

  explicit Inputs(const ExpertsCase& z, unsigned seed = 1)
      : x(random_bf16(z.rows() * z.width, seed, -2, 2)),
        parameters(random_bf16(z.parameters(), seed + 1)),
        gradient(random_bf16(z.rows() * z.width, seed + 2)),
        before(random_bf16(z.parameters(), seed + 3)) {}
};

Numbers mask_of(const ExpertsCase& z, int microbatch) {
  const Array<double> mask(Numbers(z.rows() * z.width, 1.0));
  dropout<double>({}, mask.vector(), mask.vector(), context_of(z, microbatch).dropout(mlp_residual_dropout(block)));
  return mask.get();
}

ReferenceExperts reference(const ExpertsCase& z, const Inputs& in, int microbatch = 0) {
  return {z, in.x, in.parameters, mask_of(z, microbatch)};
}

struct Outcome {
  Numbers out, input_gradient, gradients;
  double balance = 0;
  Integers chosen, counts;  // without recomputation

  bool operator==(const Outcome&) const = default;
};

// The layer with several microbatches in flight. All memory holds not-a-numbers, and what a pass must not rely on holds them
// again before the next.
template <class T>
class Branch {
 public:
  using C = Compute<T>;

  Branch(const ExpertsCase& z, const Numbers& parameters, const Numbers& before, Recompute recompute, int microbatches = 1)
      : z_(z), recompute_(recompute), vectors_(parameters), matrices_(parameters), gradients_(before) {
    BlockLayout layout;
    layout.per_wide = elements_per_wide<T>;
    at_ = experts_activations(layout, model_of(z), {z.batch, z.sequence}, recompute);
    work_ = experts_gradients(layout, model_of(z), {z.batch, z.sequence});
    for (int m = 0; m < microbatches; ++m) slots_.push_back(memory_of(layout.slot));
    workspace_ = memory_of(layout.workspace);
    scratch_ = memory_of(layout.scratch);
  }

  Numbers forward(int m, const Numbers& x) {
    const Array<T> out(x.size());
    forget(workspace_);
    forget(scratch_);
    const Array<T> input(x);
    Kokkos::deep_copy(flatten(memory(m).matrix(at_.input, z_.width)), input.vector());
    experts_branch_forward<T>(context_of(z_, m), block, weights(), at_, memory(m), out.matrix(z_.rows(), z_.width));
    return out.get();
  }
  Numbers backward(int m, const Numbers& output_gradient) {
    forget(workspace_);
    forget(scratch_);
    const Array<T> gradient(output_gradient);
    if (recompute_ == Recompute::block) experts_activate<T>(context_of(z_, m), weights(), at_, memory(m));
    experts_branch_backward_input<T>(context_of(z_, m), block, weights(), at_, work_, memory(m),
                                     gradient.matrix(z_.rows(), z_.width));
    Kokkos::fence();
    forget(scratch_);
    experts_branch_backward_weight<T>(context_of(z_, m), tensors<C>(gradients_, gradients_), at_, work_, memory(m));
    return gradient.get();
  }

  Numbers gradients() const { return gradients_.get(); }
  double balance(int m) const { return read(memory(m).doubles(at_.balance, 1)).at(0); }
  Integers chosen(int m) const { return read(memory(m).integers(at_.choices, z_.rows() * z_.choices)); }
  Integers counts(int m) const { return read(memory(m).integers(at_.counts, z_.experts)); }
  std::size_t slot_size() const { return slots_.at(0).size(); }

 private:
  static OwnedVector<C> memory_of(const Layout& layout) {
    const OwnedVector<C> memory("memory", layout.end());
    forget(memory);
    return memory;
  }
  static void forget(const OwnedVector<C>& memory) { Kokkos::deep_copy(memory, std::numeric_limits<C>::quiet_NaN()); }

  BlockMemory<T> memory(int m) const { return {slots_.at(m), workspace_, scratch_, z_.rows()}; }
  ExpertsTensors<T> weights() const { return tensors<T>(vectors_, matrices_); }
  template <class Value>
  ExpertsTensors<Value> tensors(const Array<Compute<Value>>& vectors, const Array<Value>& matrices) const {
    const auto matrix = [&](int offset, int rows, int columns) {
      return slice_matrix<Value>(matrices.vector(), offset, rows, columns);
    };
    ExpertsTensors<Value> all;
    all.norm.weight = slice<Compute<Value>>(vectors.vector(), 0, z_.width);
    all.router = matrix(z_.router(), z_.experts, z_.width);
    for (int e = 0; e < z_.experts; ++e) {
      const int size = z_.hidden * z_.width;
      all.experts.push_back({matrix(z_.expert(e), z_.hidden, z_.width), matrix(z_.expert(e) + size, z_.hidden, z_.width),
                             matrix(z_.expert(e) + 2 * size, z_.width, z_.hidden)});
    }
    return all;
  }

  ExpertsCase z_;
  Recompute recompute_;
  Array<C> vectors_;
  Array<T> matrices_;
  Array<C> gradients_;
  ExpertsActivations at_;
  ExpertsGradients work_;
  std::vector<OwnedVector<C>> slots_;
  OwnedVector<C> workspace_, scratch_;
};

template <class T>
Outcome run(const ExpertsCase& z, const Inputs& in, Recompute recompute = Recompute::none) {
  Branch<T> branch(z, in.parameters, in.before, recompute);
  Outcome result;
  result.out = branch.forward(0, in.x);
  result.balance = branch.balance(0);
  if (recompute != Recompute::block) {
    result.chosen = branch.chosen(0);
    result.counts = branch.counts(0);
  }
  result.input_gradient = branch.backward(0, in.gradient);
  result.gradients = branch.gradients();
  return result;
}

// One expert; one and all as choices; capacities that drop, also with dropout; more than one block of rows in the plan.
const ExpertsCase cases[] = {
    {},
    {.experts = 1, .choices = 1},
    {.choices = 1},
    {.choices = 4, .balance_scale = 0},
    {.experts = 5, .choices = 3, .capacity = 0.6},
    {.batch = 1, .sequence = 5, .width = 3, .hidden = 1, .experts = 3, .choices = 1, .capacity = 0.5, .dropout = 0.3},
    {.choices = 4, .capacity = 0.5},
    {.batch = 5, .sequence = 20, .width = 4, .hidden = 2, .experts = 3, .dropout = 0.2},
};
bool drops(const ExpertsCase& z) { return z.capacity > 0; }

TEST(ExpertsBranch, ForwardIsThatOfPlainLoops) {
  for (const ExpertsCase& z : cases) {
    const Inputs in(z);
    const ReferenceExperts expected = reference(z, in);
    EXPECT_EQ(expected.dropped > 0, drops(z));
    for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::block}) {
      const Outcome result = run<double>(z, in, recompute);
      expect_near(result.out, expected.out, 1e-13);
      EXPECT_NEAR(result.balance, expected.balance, 1e-13);
      if (recompute == Recompute::block) continue;
      EXPECT_EQ(result.chosen, expected.chosen);
      EXPECT_EQ(result.counts, expected.counts);
    }
  }
}

// The loss that the gradients belong to: the output times `gradient`, plus the balance loss. Choices do not change within the
// steps of the differences.
double loss(const ExpertsCase& z, const Inputs& in, const Numbers& mask) {
  const ReferenceExperts result(z, in.x, in.parameters, mask);
  return dot(result.out, in.gradient) + z.balance_scale * result.balance;
}

TEST(ExpertsBranch, GradientsAreThoseOfDifferences) {
  for (const ExpertsCase& z : cases) {
    Inputs in(z);
    const Outcome result = run<double>(z, in);
    const Numbers mask = mask_of(z, 0), x = in.x, parameters = in.parameters;
    const Numbers by_input = differences(x, [&](const Numbers& at) {
      in.x = at;
      return loss(z, in, mask);
    });
    in.x = x;
    Numbers by_parameters = differences(parameters, [&](const Numbers& at) {
      in.parameters = at;
      return loss(z, in, mask);
    });
    for (std::size_t i = 0; i < by_parameters.size(); ++i) by_parameters[i] += in.before[i];
    // Derivatives are of order one to ten, their differences good to some 1e-9.
    expect_near(result.input_gradient, by_input, 2e-8);
    expect_near(result.gradients, by_parameters, 2e-8);
  }
}

// A feature that is large in all rows keeps the router from one expert.
TEST(ExpertsBranch, ExpertThatNobodyChoseGetsNoGradient) {
  const ExpertsCase z{.balance_scale = 0};
  constexpr int lonely = 1;
  Inputs in(z);
  for (int r = 0; r < z.rows(); ++r) in.x[r * z.width] = 2;
  in.parameters[0] = 1;
  in.parameters[z.router() + lonely * z.width] = -50;
  const ReferenceExperts expected = reference(z, in);
  ASSERT_EQ(expected.counts[lonely], 0);
  const Outcome result = run<double>(z, in);
  expect_near(result.out, expected.out, 1e-13);
  EXPECT_EQ(result.counts, expected.counts);
  EXPECT_FALSE(std::isnan(dot(result.gradients, result.gradients)));
  for (int e = 0; e < z.experts; ++e) {
    int changed = 0;
    for (int i = z.expert(e); i < z.expert(e + 1); ++i) changed += result.gradients[i] != in.before[i];
    EXPECT_EQ(changed, expected.counts[e] == 0 ? 0 : z.expert(1) - z.expert(0)) << "expert " << e;
  }
}

TEST(ExpertsBranch, BalanceLossAloneMovesTheRouterOfOneChoice) {
  const auto router_moves = [](double scale) {
    const ExpertsCase z{.choices = 1, .balance_scale = scale};
    const Inputs in(z);
    const Outcome result = run<double>(z, in);
    bool moves = false;
    for (int i = z.router(); i < z.expert(0); ++i) moves = moves || result.gradients[i] != in.before[i];
    return moves;
  };
  EXPECT_FALSE(router_moves(0));
  EXPECT_TRUE(router_moves(0.1));
}

template <class T>
class ExpertsPrecision : public ::testing::Test {};
using Stored = ::testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(ExpertsPrecision, Stored);

TYPED_TEST(ExpertsPrecision, RecomputationGivesTheSameBits) {
  using T = TypeParam;
  for (const ExpertsCase& z : cases) {
    const Inputs in(z);
    Outcome kept = run<T>(z, in);
    EXPECT_EQ(run<T>(z, in, Recompute::attention), kept);
    kept.chosen = kept.counts = {};
    EXPECT_EQ(run<T>(z, in, Recompute::block), kept);
    // The input and the balance loss, each in whole 64 bytes or more.
    const Branch<T> branch(z, in.parameters, in.before, Recompute::block);
    const std::size_t per_wide = elements_per_wide<T>;
    EXPECT_EQ(branch.slot_size(), padded((in.x.size() + per_wide - 1) / per_wide) + padded(1));
  }
}

TYPED_TEST(ExpertsPrecision, MicrobatchesInFlightDoNotMeet) {
  using T = TypeParam;
  const ExpertsCase z{.experts = 3, .capacity = 0.8};
  for (const Recompute recompute : {Recompute::none, Recompute::block}) {
    const Inputs first(z, 1), second(z, 20);
    Branch<T> branch(z, first.parameters, first.before, recompute, 2), alone(z, first.parameters, first.before, recompute, 2);
    const Numbers outs[] = {branch.forward(0, first.x), branch.forward(1, second.x)};
    EXPECT_NE(branch.balance(0), branch.balance(1));
    const Numbers gradients[] = {branch.backward(0, first.gradient), branch.backward(1, second.gradient)};
    EXPECT_EQ(outs[0], alone.forward(0, first.x));
    EXPECT_EQ(gradients[0], alone.backward(0, first.gradient));
    EXPECT_EQ(outs[1], alone.forward(1, second.x));
    EXPECT_EQ(gradients[1], alone.backward(1, second.gradient));
    EXPECT_EQ(branch.gradients(), alone.gradients());
  }
}

double size_of(const Numbers& values) { return std::sqrt(dot(values, values)); }

// The distance from the result in double, relative to its size without what the gradients began with.
void expect_close(const Numbers& values, const Numbers& exact, const Numbers& base, double band, double least) {
  ASSERT_EQ(values.size(), exact.size());
  Numbers difference(exact), change(exact);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    difference[i] -= values[i];
    change[i] -= base[i];
  }
  EXPECT_LT(size_of(difference), band * size_of(change));
  EXPECT_GT(size_of(difference), least * size_of(change));
}

// Some 30 roundings of each number from the input to a gradient, some 10 stored arrays among them; the sums are short.
TEST(ExpertsBranch, FloatAndBf16AreCloseToDouble) {
  for (const ExpertsCase& z : cases) {
    const Inputs in(z);
    const Numbers zeros(in.x.size());
    const Outcome exact = run<double>(z, in), single = run<float>(z, in), half = run<bf16>(z, in);
    ASSERT_EQ(single.chosen, exact.chosen);
    ASSERT_EQ(half.chosen, exact.chosen) << "two logits too close to each other for bf16: take another seed";
    const double fine = 30 * testing::rounding<float>, coarse = 10 * testing::bf16_rounding;
    expect_close(single.out, exact.out, zeros, fine, 0);
    expect_close(single.input_gradient, exact.input_gradient, zeros, fine, 0);
    expect_close(single.gradients, exact.gradients, in.before, fine, 0);
    EXPECT_NEAR(single.balance, exact.balance, fine);
    expect_close(half.out, exact.out, zeros, coarse, 1e-4);
    expect_close(half.input_gradient, exact.input_gradient, zeros, coarse, 1e-4);
    expect_close(half.gradients, exact.gradients, in.before, coarse, 1e-4);
    EXPECT_NEAR(half.balance, exact.balance, coarse);
  }
}

TEST(ExpertsBranch, TensorsComeInTheOrderOfTheList) {
  const ExpertsCase z;
  std::vector<ParameterEntry> entries;
  const auto add = [&](std::vector<int> shape) {
    ParameterEntry entry;
    entry.size = 1;
    for (const int extent : shape) entry.size *= static_cast<std::size_t>(extent);
    entry.shape = shape;
    entry.offset = entries.empty() ? 0 : entries.back().offset + entries.back().size;
    entries.push_back(entry);
  };
  add({z.width});
  add({z.experts, z.width});
  for (int e = 0; e < z.experts; ++e) {
    add({z.hidden, z.width});
    add({z.hidden, z.width});
    add({z.width, z.hidden});
  }
  add({1});
  const Array<double> buffer(z.parameters() + 1);
  TensorCursor<double> next(buffer.vector(), model_of(z), entries);
  const ExpertsTensors<double> tensors = experts_tensors<double>(next, model_of(z));
  EXPECT_EQ(tensors.norm.weight.data(), buffer.vector().data());
  EXPECT_EQ(tensors.router.data(), buffer.vector().data() + z.router());
  ASSERT_EQ(tensors.experts.size(), 4U);
  for (int e = 0; e < z.experts; ++e) {
    const double* first = buffer.vector().data() + z.expert(e);
    EXPECT_EQ(tensors.experts[e].gate.data(), first);
    EXPECT_EQ(tensors.experts[e].up.data(), first + z.hidden * z.width);
    EXPECT_EQ(tensors.experts[e].down.data(), first + 2 * z.hidden * z.width);
    EXPECT_EQ(tensors.experts[e].down.extent(1), static_cast<std::size_t>(z.hidden));
  }
  EXPECT_EQ(next.vector().data(), buffer.vector().data() + z.parameters()) << "where the next layer begins";
}

}  // namespace
}  // namespace minipipe::core::test
