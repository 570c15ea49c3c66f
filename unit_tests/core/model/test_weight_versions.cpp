#include <gtest/gtest.h>

#include <cmath>

#include "schedules/error.hpp"
#include "unit_tests/core/model/pipeline.hpp"

namespace minipipe::core::test {
namespace {

using Values = std::map<std::string, std::vector<float>>;

KokkosStageOptions options_with(WeightRule rule, std::int64_t window = 1) {
  KokkosStageOptions options = small_options();
  options.weight_rule = rule;
  options.window = window;
  options.weight_copies = 3;
  return options;
}

Values parameters(const Pipeline& pipeline) { return pipeline.read(&ParameterStore::parameter); }
Values gradients(const Pipeline& pipeline) { return pipeline.read(&ParameterStore::gradient); }

void set_parameters(Pipeline& pipeline, const Values& values) {
  for (const auto& stage : pipeline.stages) {
    ParameterStore& store = stage->parameters();
    for (std::size_t e = 0; e < store.entries().size(); ++e) store.set_parameter(e, values.at(store.entries()[e].name));
  }
}

void update(Pipeline& pipeline, std::int64_t number) {
  for (const auto& stage : pipeline.stages) stage->update(number);
}

// Forwards run two microbatches ahead of backwards; an update after each window of backwards.
void run_ahead(Pipeline& pipeline, std::int64_t first, std::int64_t end, std::int64_t window) {
  for (std::int64_t k = first; k < end + 2; ++k) {
    if (k < end) pipeline.forward(k);
    if (k < first + 2) continue;
    pipeline.backward(k - 2);
    if ((k - 1) % window == 0) update(pipeline, (k - 1) / window - 1);
  }
}

TEST(StashedWeights, GradientsAreThoseOfAStageThatNeverChanged) {
  for (const bool split : {false, true}) {
    KokkosStageOptions options = options_with(WeightRule::stashed);
    options.split_backward = split;
    Pipeline stashing(options, 2);
    options.weight_rule = WeightRule::current;
    for (int k = 0; k < 3; ++k) stashing.forward(k);
    const Values start = parameters(stashing);
    for (int k = 0; k < 3; ++k) {
      stashing.backward(k);
      Pipeline fresh(options, 2);  // never updated
      fresh.forward(k);
      fresh.backward(k);
      EXPECT_EQ(gradients(stashing), gradients(fresh)) << k;
      update(stashing, k);
    }
    // A forward after three updates uses the newest weights, and so does its backward.
    const Values newest = parameters(stashing);
    EXPECT_NE(newest, start);
    stashing.forward(3);
    stashing.backward(3);
    Pipeline fresh(options, 2);
    set_parameters(fresh, newest);
    fresh.forward(3);
    fresh.backward(3);
    EXPECT_EQ(gradients(stashing), gradients(fresh));
  }
}

// In the steady state microbatch k uses version k - 2 in both passes; the ring goes round several times.
TEST(StashedWeights, RingGoesRound) {
  KokkosStageOptions options = options_with(WeightRule::stashed);
  Pipeline stashing(options, 2);
  options.weight_rule = WeightRule::current;
  std::vector<Values> versions = {parameters(stashing)};
  for (int k = 0; k < 9; ++k) {
    stashing.forward(k);
    if (k < 2) continue;
    const int b = k - 2;
    stashing.backward(b);
    Pipeline reference(options, 2);
    set_parameters(reference, versions[std::max(b - 2, 0)]);
    reference.forward(b);
    reference.backward(b);
    EXPECT_EQ(gradients(stashing), gradients(reference)) << b;
    update(stashing, b);
    versions.push_back(parameters(stashing));
    ASSERT_NE(versions[b], versions[b + 1]);
  }
}

TEST(StashedWeights, RefuseMoreVersionsThanThereIsRoomFor) {
  for (const int copies : {1, 2}) {
    KokkosStageOptions options = options_with(WeightRule::stashed);
    options.weight_copies = copies;
    Pipeline pipeline(options, 1);
    for (int k = 0; k < copies; ++k) {
      pipeline.forward(k);
      if (k + 1 < copies) update(pipeline, k);
    }
    const Values before = parameters(pipeline);
    EXPECT_THROW(update(pipeline, copies - 1), RunError);
    EXPECT_EQ(before, parameters(pipeline));
  }
  KokkosStageOptions options = options_with(WeightRule::stashed);
  options.weight_copies = 0;
  EXPECT_THROW(Pipeline(options, 1), InputError);
}

TEST(StashedWeights, OneCopySufficesWithoutUpdatesInBetween) {
  KokkosStageOptions options = options_with(WeightRule::stashed);
  options.weight_copies = 1;
  Pipeline stashing(options, 1);
  options.weight_rule = WeightRule::current;
  Pipeline plain(options, 1);
  for (int u = 0; u < 3; ++u) {
    stashing.step(u);
    plain.step(u);
  }
  EXPECT_EQ(parameters(stashing), parameters(plain));
}

// Against one stage whose weights are exchanged by hand: passes of window u with version max(u - 1, 0), gradients applied to
// the newest.
TEST(DoubleBufferedWeights, FollowTheVersionRule) {
  constexpr int window = 3, windows = 5;
  Pipeline buffered(options_with(WeightRule::double_buffered, window), 2);
  run_ahead(buffered, 0, window * windows, window);

  Pipeline reference(options_with(WeightRule::current, window), 1);
  std::vector<Values> versions = {parameters(reference)};
  for (int u = 0; u < windows; ++u) {
    set_parameters(reference, versions[std::max(u - 1, 0)]);
    for (int k = u * window; k < (u + 1) * window; ++k) {
      reference.forward(k);
      reference.backward(k);
    }
    set_parameters(reference, versions[u]);
    update(reference, u);
    versions.push_back(parameters(reference));
    ASSERT_NE(versions[u], versions[u + 1]);
  }
  EXPECT_EQ(buffered.take_losses(), reference.take_losses());
  EXPECT_EQ(parameters(buffered), parameters(reference));
  const WeightVersions& state = buffered.stages[1]->versions();
  EXPECT_EQ(state.version(), windows);
  EXPECT_EQ(state.shadow(0), versions[windows - 1].at(buffered.stages[1]->parameters().entries()[0].name));
}

TEST(DoubleBufferedWeights, SynchronousUpdatesComeFirst) {
  constexpr int window = 3, windows = 5, synchronous = 2;
  KokkosStageOptions options = options_with(WeightRule::double_buffered, window);
  options.synchronous_updates = synchronous;
  Pipeline buffered(options, 2);
  for (int u = 0; u < synchronous; ++u) buffered.step(u);
  run_ahead(buffered, window * synchronous, window * windows, window);

  Pipeline reference(options_with(WeightRule::current, window), 1);
  std::vector<Values> versions = {parameters(reference)};
  for (int u = 0; u < windows; ++u) {
    set_parameters(reference, versions[u < synchronous ? u : std::max(u - 1, synchronous)]);
    for (int k = u * window; k < (u + 1) * window; ++k) {
      reference.forward(k);
      reference.backward(k);
    }
    set_parameters(reference, versions[u]);
    update(reference, u);
    versions.push_back(parameters(reference));
  }
  EXPECT_EQ(buffered.take_losses(), reference.take_losses());
  EXPECT_EQ(parameters(buffered), parameters(reference));
}

TEST(DoubleBufferedWeights, RefuseAVersionThatIsNotThere) {
  Pipeline pipeline(options_with(WeightRule::double_buffered, 1), 1);
  pipeline.forward(0);
  pipeline.forward(1);
  EXPECT_THROW(pipeline.forward(2), RunError);  // needs version 1
  update(pipeline, 0);
  update(pipeline, 1);
  EXPECT_THROW(pipeline.backward(1), RunError);  // version 0 is gone
}

KokkosStageOptions pipemare_options() {
  KokkosStageOptions options = options_with(WeightRule::corrected);
  options.pipemare = {2.5, 8, 0.2};
  return options;
}

TEST(CorrectedWeights, VelocityAndCorrectionFollowTheFormulas) {
  const KokkosStageOptions options = pipemare_options();
  Pipeline pipeline(options, 1);
  const WeightVersions& state = pipeline.stages[0]->versions();
  const auto& entries = pipeline.stages[0]->parameters().entries();
  const double gamma = std::pow(0.2, 1 / 2.5);
  Values before = parameters(pipeline);
  std::map<std::string, std::vector<double>> velocity;
  for (int u = 0; u < 4; ++u) {
    pipeline.step(u);
    const Values after = parameters(pipeline);
    for (std::size_t e = 0; e < entries.size(); ++e) {
      const std::string& name = entries[e].name;
      auto& d = velocity[name];
      d.resize(entries[e].size);
      const std::vector<float> measured = state.velocity(e);
      const std::vector<float> corrected = read_entry(state.buffer(1), entries[e]);
      for (std::size_t i = 0; i < d.size(); ++i) {
        d[i] = gamma * d[i] + (1 - gamma) * (static_cast<double>(after.at(name)[i]) - before.at(name)[i]);
        ASSERT_NEAR(measured[i], d[i], 1e-6 * std::abs(d[i]) + 1e-9) << name;
        ASSERT_NEAR(corrected[i], after.at(name)[i] - 2.5 * d[i], 2e-7 * (std::abs(after.at(name)[i]) + 0.01)) << name;
      }
    }
    before = after;
  }
  EXPECT_NE(state.velocity(0), std::vector<float>(entries[0].size));
}

// The forward uses the newest weights, the backward the corrected ones: exactly as if they had been exchanged by hand.
TEST(CorrectedWeights, OnlyTheBackwardUsesThem) {
  Pipeline pipeline(pipemare_options(), 2);
  for (int u = 0; u < 3; ++u) pipeline.step(u);
  pipeline.take_losses();
  Values corrected;
  for (const auto& stage : pipeline.stages) {
    for (const ParameterEntry& entry : stage->parameters().entries()) {
      corrected[entry.name] = read_entry(stage->versions().buffer(1), entry);
    }
  }
  Pipeline reference(options_with(WeightRule::current), 2);
  set_parameters(reference, parameters(pipeline));
  for (Pipeline* each : {&pipeline, &reference}) each->forward(9);
  EXPECT_EQ(pipeline.take_losses(), reference.take_losses());
  EXPECT_NE(corrected, parameters(reference));
  set_parameters(reference, corrected);
  for (Pipeline* each : {&pipeline, &reference}) each->backward(9);
  EXPECT_EQ(gradients(pipeline), gradients(reference));
}

TEST(CorrectedWeights, RatesAreDividedOnStagesWithALongDelay) {
  KokkosStageOptions options = options_with(WeightRule::corrected, 2);
  options.pipemare.annealing_steps = 8;
  options.synchronous_updates = 1;
  options.learning_rate = {1e-2, 1e-3, 0, 100};
  const Pipeline pipeline(options, 4);
  const double taus[] = {3.5, 2.5, 1.5, 0.5};  // (2 (N - i) + 1) / 2
  for (int s = 0; s < 4; ++s) {
    EXPECT_DOUBLE_EQ(pipemare_delay(pipeline.stages[s]->options()), taus[s]);
    for (const int u : {0, 1, 5, 9, 50}) {
      const double power = u < 1 ? 0 : 1 - std::min((u - 1) / 8.0, 1.0);
      const double divisor = taus[s] > 1 ? std::pow(taus[s], power) : 1.0;
      EXPECT_DOUBLE_EQ(pipeline.stages[s]->learning_rate_at(u), learning_rate(u, options.learning_rate) / divisor);
    }
  }
}

TEST(CorrectedWeights, SynchronousWindowsUseTheCurrentOnes) {
  KokkosStageOptions options = pipemare_options();
  options.synchronous_updates = 3;
  Pipeline synchronous(options, 1);
  Pipeline plain(options_with(WeightRule::current), 1);
  for (int u = 0; u < 3; ++u) {
    synchronous.step(u);
    plain.step(u);
  }
  EXPECT_EQ(parameters(synchronous), parameters(plain));
  synchronous.step(3);
  plain.step(3);
  EXPECT_NE(parameters(synchronous), parameters(plain));
}

TEST(CorrectedWeights, RefuseADecayThatForgetsNothing) {
  KokkosStageOptions options = pipemare_options();
  options.pipemare.decay = 1;
  EXPECT_THROW(Pipeline(options, 1), InputError);
}

class WeightRules : public ::testing::TestWithParam<WeightRule> {
 protected:
  KokkosStageOptions options() const {
    KokkosStageOptions options = options_with(GetParam(), 2);
    options.pipemare = {2.5, 8, 0.2};  // the same delay on all stages
    return options;
  }
};

TEST_P(WeightRules, ResultsDoNotDependOnThePartition) {
  const auto run = [&](int stages) {
    Pipeline pipeline(options(), stages);
    run_ahead(pipeline, 0, 10, 2);
    return std::pair(pipeline.take_losses(), parameters(pipeline));
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(2));
  EXPECT_EQ(one, run(4));
}

TEST_P(WeightRules, MemoryIsWhatWasPlanned) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::muon}) {
    for (const int copies : {1, 4}) {
      KokkosStageOptions options = this->options();
      options.optimizer = kind;
      options.weight_copies = copies;
      const Pipeline pipeline(options, 2);
      for (const auto& stage : pipeline.stages) {
        const StageBytes bytes = stage->bytes();
        EXPECT_EQ(bytes, planned_memory(stage->options()));
        const std::size_t buffers = GetParam() == WeightRule::stashed           ? copies - 1
                                    : GetParam() == WeightRule::double_buffered ? 1
                                    : GetParam() == WeightRule::corrected       ? 2
                                                                                : 0;
        EXPECT_EQ(bytes.weight_versions, buffers * bytes.parameters);
        EXPECT_EQ(bytes.total(),
                  bytes.parameters + bytes.gradients + bytes.optimizer + bytes.weight_versions + bytes.activations);
      }
    }
  }
}

// A drain after update 3; the resumed run gets what a checkpoint holds.
TEST_P(WeightRules, AResumedRunEqualsOneThatWasNotInterrupted) {
  Pipeline whole(options(), 2);
  run_ahead(whole, 0, 6, 2);
  Pipeline resumed(options(), 2);
  for (int s = 0; s < 2; ++s) {
    const ParameterStore& from = whole.stages[s]->parameters();
    const WeightVersions& old = whole.stages[s]->versions();
    ParameterStore& to = resumed.stages[s]->parameters();
    WeightVersions& versions = resumed.stages[s]->versions();
    for (std::size_t e = 0; e < from.entries().size(); ++e) {
      to.set_parameter(e, from.parameter(e));
      to.set_first_moment(e, from.first_moment(e));
      to.set_second_moment(e, from.second_moment(e));
      if (old.has_shadow()) versions.set_shadow(e, old.shadow(e));
      if (old.has_velocity()) versions.set_velocity(e, old.velocity(e));
    }
    versions.start_at(3);
  }
  whole.take_losses();
  for (Pipeline* pipeline : {&whole, &resumed}) run_ahead(*pipeline, 6, 12, 2);
  EXPECT_EQ(whole.take_losses(), resumed.take_losses());
  EXPECT_EQ(parameters(whole), parameters(resumed));
}

TEST_P(WeightRules, HaveOnlyTheirOwnState) {
  Pipeline pipeline(options(), 1);
  WeightVersions& versions = pipeline.stages[0]->versions();
  EXPECT_EQ(versions.has_shadow(), GetParam() == WeightRule::double_buffered);
  EXPECT_EQ(versions.has_velocity(), GetParam() == WeightRule::corrected);
  if (!versions.has_shadow()) {
    EXPECT_THROW(versions.shadow(0), RunError);
  }
  if (!versions.has_velocity()) {
    EXPECT_THROW(versions.velocity(0), RunError);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WeightRules,
                         ::testing::Values(WeightRule::current, WeightRule::stashed, WeightRule::double_buffered,
                                           WeightRule::corrected));

}  // namespace
}  // namespace minipipe::core::test
