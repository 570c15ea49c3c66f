#include <gtest/gtest.h>

#include <cmath>

#include "schedules/error.hpp"
#include "unit_tests/core/model/pipeline.hpp"

namespace minipipe::core::test {
namespace {

using Values = std::map<std::string, std::vector<float>>;

KokkosStageOptions options_with(OptimizerKind kind) {
  KokkosStageOptions options = small_options();
  options.optimizer = kind;
  return options;
}

struct Outcome {
  std::vector<double> losses;
  Values parameters, first_moments, second_moments;
};

Outcome train(const KokkosStageOptions& options, int stages, const std::vector<int>& partition = {}) {
  Pipeline pipeline(options, stages, partition);
  for (int u = 0; u < 3; ++u) pipeline.step(u);
  return {pipeline.take_losses(), pipeline.read(&ParameterStore::parameter), pipeline.read(&ParameterStore::first_moment),
          pipeline.read(&ParameterStore::second_moment)};
}

class Optimizer : public ::testing::TestWithParam<OptimizerKind> {};

TEST_P(Optimizer, ResultsDoNotDependOnThePartition) {
  KokkosStageOptions wide = options_with(GetParam());
  wide.model = {"gpt2", 2, 96, 3, 257, 96, false, 0.1};
  for (const KokkosStageOptions& options : {options_with(GetParam()), wide}) {
    const Outcome one = train(options, 1);
    const int blocks = options.model.layers;
    for (const auto& partition : {std::vector<int>{0, blocks, 0}, std::vector<int>{blocks - 1, 1}}) {
      const Outcome other = train(options, static_cast<int>(partition.size()), partition);
      EXPECT_EQ(one.losses, other.losses);
      EXPECT_EQ(one.parameters, other.parameters);
      EXPECT_EQ(one.first_moments, other.first_moments);
      EXPECT_EQ(one.second_moments, other.second_moments);
    }
  }
}

TEST_P(Optimizer, LearnsARepeatedMicrobatch) {
  KokkosStageOptions options = options_with(GetParam());
  options.model.dropout = 0;
  options.window = 1;
  options.learning_rate = {1e-2, 1e-2, 2, 60};
  Pipeline pipeline(options, 2);
  for (int u = 0; u < 60; ++u) {
    pipeline.forward(0);
    pipeline.backward(0);
    for (const auto& stage : pipeline.stages) stage->update(u);
  }
  const auto losses = pipeline.take_losses();
  EXPECT_NEAR(losses.front(), std::log(29.0), 0.1);
  EXPECT_LT(losses.back(), 0.5);
}

TEST_P(Optimizer, MemoryIsWhatWasPlanned) {
  for (const int stages : {1, 3}) {
    const Pipeline pipeline(options_with(GetParam()), stages);
    for (const auto& stage : pipeline.stages) EXPECT_EQ(stage->bytes(), planned_memory(stage->options()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Optimizer, ::testing::Values(OptimizerKind::adamw, OptimizerKind::nadam, OptimizerKind::muon));

TEST(Optimizers, GiveDifferentResults) {
  const Values adamw = train(options_with(OptimizerKind::adamw), 1).parameters;
  const Values nadam = train(options_with(OptimizerKind::nadam), 1).parameters;
  const Values muon = train(options_with(OptimizerKind::muon), 1).parameters;
  for (const auto& [name, values] : adamw) EXPECT_NE(values, nadam.at(name)) << name;
  EXPECT_NE(adamw.at("transformer.h.1.mlp.c_fc.weight"), muon.at("transformer.h.1.mlp.c_fc.weight"));
}

TEST(MuonStage, TakesTheMatricesInsideBlocksAndLeavesTheRestToAdamW) {
  KokkosStageOptions options = options_with(OptimizerKind::muon);
  Pipeline muon(options, 1);
  options.optimizer = OptimizerKind::adamw;
  Pipeline adamw(options, 1);
  for (Pipeline* pipeline : {&muon, &adamw}) pipeline->step(0);
  const Values by_muon = muon.read(&ParameterStore::parameter), by_adamw = adamw.read(&ParameterStore::parameter);
  const ParameterStore& store = muon.stages[0]->parameters();
  int matrices = 0;
  for (std::size_t e = 0; e < store.entries().size(); ++e) {
    const ParameterEntry& entry = store.entries()[e];
    const bool inside = entry.name.find(".h.") != std::string::npos && entry.shape.size() == 2;
    matrices += inside;
    EXPECT_EQ(by_muon.at(entry.name) == by_adamw.at(entry.name), !inside) << entry.name;
    EXPECT_EQ(store.has_second_moment(e), !inside) << entry.name;
    EXPECT_EQ(store.second_moment(e).size(), inside ? 0 : entry.size) << entry.name;
  }
  EXPECT_EQ(matrices, 4 * 4);
  EXPECT_EQ(store.second_moment(0), adamw.stages[0]->parameters().second_moment(0));
  const auto last = store.entries().size() - 1;
  EXPECT_EQ(store.second_moment(last), adamw.stages[0]->parameters().second_moment(last));
}

TEST(MuonStage, SavesTheSecondMomentsOfItsMatrices) {
  KokkosStageOptions options = options_with(OptimizerKind::muon);
  options.model.width = 256;
  options.layers = {false, 0, 2, false};
  const StageBytes muon = planned_memory(options);
  options.optimizer = OptimizerKind::adamw;
  const StageBytes adamw = planned_memory(options);
  EXPECT_EQ(adamw.optimizer, 2 * adamw.parameters);
  // Two blocks of 12 C^2 without a second moment; workspace of two matrices 4C x C, two C x C, and some sums.
  const std::size_t square = 256 * 256 * sizeof(float);
  const std::size_t expected = adamw.optimizer - 24 * square + 10 * square;
  EXPECT_GE(muon.optimizer, expected);
  EXPECT_LE(muon.optimizer, expected + 1024);
}

// Query, key and value are three maps: each moves by a matrix of its own with singular values near 1, so that the step of each
// has about the same norm, sqrt(C), whatever its gradient.
TEST(MuonStage, TreatsQueryKeyAndValueApart) {
  KokkosStageOptions options = options_with(OptimizerKind::muon);
  options.adamw.weight_decay = 0;
  options.learning_rate = {1e-3, 1e-3, 0, 10};
  options.muon.learning_rate = 0.5;
  Pipeline pipeline(options, 1);
  const std::string name = "transformer.h.2.attn.c_attn.weight";
  const std::vector<float> before = pipeline.read(&ParameterStore::parameter).at(name);
  pipeline.step(0);
  const std::vector<float> after = pipeline.read(&ParameterStore::parameter).at(name);
  for (int map = 0; map < 3; ++map) {
    double square = 0;
    for (int i = map * 1024; i < (map + 1) * 1024; ++i) square += std::pow(after[i] - before[i], 2.0);
    const double norm = std::sqrt(square) / 0.5 / std::sqrt(32.0);
    EXPECT_GT(norm, 0.5) << map;
    EXPECT_LT(norm, 1.2) << map;
  }
}

TEST(MuonStage, ItsRateFollowsTheSchedule) {
  KokkosStageOptions options = options_with(OptimizerKind::muon);
  options.adamw.weight_decay = 0;
  const std::string name = "transformer.h.0.mlp.c_fc.weight";
  const auto change = [&](double peak, std::int64_t warmup) {
    options.learning_rate = {peak, peak, warmup, 10};
    Pipeline pipeline(options, 1);
    const std::vector<float> before = pipeline.read(&ParameterStore::parameter).at(name);
    pipeline.step(0);
    std::vector<float> difference = pipeline.read(&ParameterStore::parameter).at(name);
    for (std::size_t i = 0; i < before.size(); ++i) difference[i] -= before[i];
    return difference;
  };
  const std::vector<float> whole = change(1e-2, 0), other_peak = change(1e-3, 0), quarter = change(1e-2, 4);
  double largest = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(whole[i])));
    EXPECT_NEAR(whole[i], other_peak[i], 2e-7);
    EXPECT_NEAR(whole[i] / 4, quarter[i], 2e-7);
  }
  EXPECT_GT(largest, 1e-3);
}

TEST(MuonStage, MomentsOfMatricesCannotBeSet) {
  Pipeline pipeline(options_with(OptimizerKind::muon), 1);
  ParameterStore& store = pipeline.stages[0]->parameters();
  const int matrix = store.find("transformer.h.0.mlp.c_fc.weight"), head = store.find("lm_head.weight");
  const std::vector<float> values(store.entries()[head].size, 2.0f);
  store.set_second_moment(head, values);
  EXPECT_EQ(store.second_moment(head), values);
  store.set_second_moment(matrix, {});
  EXPECT_THROW(store.set_second_moment(matrix, std::vector<float>(store.entries()[matrix].size)), RunError);
}

}  // namespace
}  // namespace minipipe::core::test
