#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/model/flops.hpp"
#include "core/model/optimizer_layout.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/model/outcome.hpp"

namespace minipipe::core::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ModelConfig all_kinds = small_hybrid().model;

std::vector<std::string> names_of(const std::vector<ParameterEntry>& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.name);
  return names;
}

std::vector<ParameterEntry> of_layer(int block) { return parameter_list(all_kinds, {false, block, 1, false}); }

TEST(Hybrid, ParametersHaveTheNamesAndShapesOfNemotronH) {
  EXPECT_THAT(names_of(parameter_list(all_kinds, {true, 0, 0, false})), ElementsAre("backbone.embeddings.weight"));
  EXPECT_THAT(names_of(parameter_list(all_kinds, {false, 5, 0, true})),
              ElementsAre("backbone.norm_f.weight", "lm_head.weight"));
  const auto state_space = of_layer(0), attention = of_layer(1), experts = of_layer(2), mlp = of_layer(3);
  EXPECT_THAT(names_of(state_space),
              ElementsAre("backbone.layers.0.norm.weight", "backbone.layers.0.mixer.in_proj.weight",
                          "backbone.layers.0.mixer.conv1d.weight", "backbone.layers.0.mixer.conv1d.bias",
                          "backbone.layers.0.mixer.dt_bias", "backbone.layers.0.mixer.A_log", "backbone.layers.0.mixer.D",
                          "backbone.layers.0.mixer.norm.weight", "backbone.layers.0.mixer.out_proj.weight"));
  // 64 features in 4 heads of 16; 64 + 2 * 2 * 8 pass the convolution.
  EXPECT_THAT(state_space[1].shape, ElementsAre(64 + 96 + 4, 32));
  EXPECT_THAT(state_space[2].shape, ElementsAre(96, 4));
  EXPECT_THAT(state_space[3].shape, ElementsAre(96));
  for (const int vector : {4, 5, 6}) EXPECT_THAT(state_space[vector].shape, ElementsAre(4));
  EXPECT_THAT(state_space[7].shape, ElementsAre(64));
  EXPECT_THAT(state_space[8].shape, ElementsAre(32, 64));
  EXPECT_THAT(names_of(attention), ElementsAre("backbone.layers.1.norm.weight", "backbone.layers.1.mixer.q_proj.weight",
                                               "backbone.layers.1.mixer.k_proj.weight", "backbone.layers.1.mixer.v_proj.weight",
                                               "backbone.layers.1.mixer.o_proj.weight"));
  EXPECT_THAT(attention[2].shape, ElementsAre(16, 32));
  ASSERT_EQ(experts.size(), 2u + 4 * 3);
  EXPECT_EQ(experts[1].name, "backbone.layers.2.mixer.gate.weight");
  EXPECT_THAT(experts[1].shape, ElementsAre(4, 32));
  EXPECT_EQ(experts[5].name, "backbone.layers.2.mixer.experts.1.gate_proj.weight");
  EXPECT_EQ(experts[6].name, "backbone.layers.2.mixer.experts.1.up_proj.weight");
  EXPECT_THAT(experts[6].shape, ElementsAre(24, 32));
  EXPECT_EQ(experts[7].name, "backbone.layers.2.mixer.experts.1.down_proj.weight");
  EXPECT_THAT(experts[7].shape, ElementsAre(32, 24));
  EXPECT_THAT(names_of(mlp), ElementsAre("backbone.layers.3.norm.weight", "backbone.layers.3.mixer.gate_proj.weight",
                                         "backbone.layers.3.mixer.up_proj.weight", "backbone.layers.3.mixer.down_proj.weight"));
  EXPECT_THAT(mlp[3].shape, ElementsAre(32, 40));
}

TEST(Hybrid, ParametersOfAStageHaveTheirPlaceInTheModel) {
  const auto whole = parameter_list(all_kinds);
  for (std::size_t e = 0; e < whole.size(); ++e) {
    EXPECT_EQ(whole[e].global_index, static_cast<int>(e));
    EXPECT_EQ(whole[e].offset % 16, 0u);
    if (e > 0) {
      EXPECT_GE(whole[e].offset, whole[e - 1].offset + whole[e - 1].size);
    }
    EXPECT_EQ(whole[e].decay, whole[e].shape.size() == 2) << whole[e].name;
  }
  for (const int stages : {2, 3, 5}) {
    std::size_t seen = 0;
    for (const StageLayers& layers : partition_model(all_kinds, 16, stages)) {
      for (const auto& entry : parameter_list(all_kinds, layers)) {
        EXPECT_EQ(entry.global_index, static_cast<int>(seen));
        EXPECT_EQ(entry.name, whole[seen].name);
        EXPECT_EQ(entry.offset % 16, 0u);
        ++seen;
      }
    }
    EXPECT_EQ(seen, whole.size());
  }
}

TEST(Hybrid, MuonUpdatesTheLinearLayers) {
  std::vector<std::string> others;
  for (const auto& entry : parameter_list(all_kinds)) {
    if (entry.shape.size() == 2 && entry.hidden_maps == 0) others.push_back(entry.name);
  }
  EXPECT_THAT(others,
              ElementsAre("backbone.embeddings.weight", "backbone.layers.0.mixer.conv1d.weight",
                          "backbone.layers.2.mixer.gate.weight", "backbone.layers.4.mixer.conv1d.weight", "lm_head.weight"));
}

TEST(Hybrid, StartsTheSameOnAnyPartition) {
  const ExecutionSpace space;
  const ParameterStore whole(space, all_kinds, {true, 0, 5, true}, 9);
  for (const StageLayers& layers : partition_model(all_kinds, 16, 3)) {
    const ParameterStore part(space, all_kinds, layers, 9);
    for (std::size_t e = 0; e < part.entries().size(); ++e) {
      const int same = whole.find(part.entries()[e].name);
      ASSERT_EQ(same, part.entries()[e].global_index);
      EXPECT_EQ(part.parameter(e), whole.parameter(same));
    }
  }
}

TEST(Hybrid, StateSpacesStartAsInMamba2) {
  ModelConfig model = all_kinds;
  model.width = 512;
  model.state_head_size = 1;  // a thousand heads
  const ParameterStore store(ExecutionSpace(), model, {false, 0, 1, false}, 1);
  const auto values = [&](const std::string& name) { return store.parameter(store.find("backbone.layers.0.mixer." + name)); };
  // Of n = 1024 uniform numbers the smallest and the largest are a few n-ths from the ends; means scatter by 0.29 / sqrt(n).
  const auto check_uniform = [](std::vector<double> numbers, double low, double high) {
    double sum = 0;
    for (double& number : numbers) sum += number = (number - low) / (high - low);
    const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
    EXPECT_GE(*least, -1e-5);
    EXPECT_LE(*least, 0.01);
    EXPECT_LE(*most, 1 + 1e-5);
    EXPECT_GE(*most, 0.99);
    EXPECT_NEAR(sum / static_cast<double>(numbers.size()), 0.5, 0.04);
  };
  std::vector<double> rates, steps, taps;
  for (const float value : values("A_log")) rates.push_back(std::exp(static_cast<double>(value)));
  for (const float value : values("dt_bias")) steps.push_back(std::log(std::log1p(std::exp(static_cast<double>(value)))));
  for (const float value : values("conv1d.weight")) taps.push_back(value);
  EXPECT_EQ(rates.size(), 1024u);
  check_uniform(rates, 1, 16);
  check_uniform(steps, std::log(1e-3), std::log(1e-1));
  check_uniform(taps, -0.5, 0.5);
  EXPECT_EQ(values("D"), std::vector<float>(1024, 1.0f));
  EXPECT_EQ(values("norm.weight"), std::vector<float>(1024, 1.0f));
}

TEST(Hybrid, DeviationsGoByTheNumberOfBranches) {
  ModelConfig model = small_hybrid("----").model;
  model.width = 128;
  const ParameterStore store(ExecutionSpace(), model, {false, 0, 4, false}, 1);
  double sum = 0;
  const auto values = store.parameter(store.find("backbone.layers.2.mixer.down_proj.weight"));
  for (const float value : values) sum += static_cast<double>(value) * value;
  EXPECT_NEAR(std::sqrt(sum / static_cast<double>(values.size())), 0.02 / 2, 0.0005);
}

TEST(Hybrid, FlopsAreThoseOfEachKind) {
  const double rows = 32, width = 32, kv = 16;
  const auto flops = [](int block) { return flops_per_microbatch(all_kinds, {2, 16}, {false, block, 1, false}); };
  const double scores = 2 * 4 * (2 * 16 * 16 * 8) * 2 / 2;  // batch, heads, two products, half of each
  EXPECT_DOUBLE_EQ(flops(1), 3 * (2 * rows * width * (2 * width + 2 * kv) + scores));
  EXPECT_DOUBLE_EQ(flops(3), 3 * 2 * rows * width * 3 * 40);
  EXPECT_DOUBLE_EQ(flops(2), 3 * 2 * rows * width * (4 + 2 * 3 * 24));  // router, two experts of each token
  const double projections = 2 * width * (164 + 64), convolution = 2 * 96 * 4, scan = 2 * 2 * 64 * 8;
  EXPECT_DOUBLE_EQ(flops(0), 3 * rows * (projections + convolution + scan));
  EXPECT_DOUBLE_EQ(flops_per_microbatch(all_kinds, {2, 16}, {false, 0, 5, false}),
                   2 * flops(0) + flops(1) + flops(2) + flops(3));
}

TEST(Hybrid, BalancedPartitionGoesByTheCostOfEachKind) {
  ModelConfig model = small_hybrid("------****").model;
  model.hidden = 8 * model.width;
  const LayerCosts costs = layer_costs(model, 16);
  EXPECT_EQ(costs.blocks.size(), 10u);
  EXPECT_EQ(costs.blocks[5], 1.0);
  EXPECT_LT(costs.blocks[6], 0.2);
  const auto stages = partition_model(model, 16, 3);
  EXPECT_EQ(stages[0].blocks, 2);
  EXPECT_EQ(stages[1].blocks, 2);
  EXPECT_EQ(stages[2].blocks, 6);
}

TEST(Hybrid, TrainsAlikeOnAnyPartition) {
  const KokkosStageOptions options = small_hybrid();
  const Outcome one = train(options, 1);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const int stages : {2, 3, options.model.layers}) expect_same(one, train(options, stages));
  expect_same(one, train(options, 3, {0, options.model.layers, 0}));
}

TEST(Hybrid, HalvesOfTheBackwardAddUpToTheWhole) {
  KokkosStageOptions options = small_hybrid();
  const Outcome whole = train(options, 2);
  options.split_backward = true;
  expect_same(whole, train(options, 2));
}

TEST(Hybrid, RecomputationGivesTheSame) {
  KokkosStageOptions options = small_hybrid();
  const Outcome plain = train(options, 2);
  for (const Recompute kind : {Recompute::attention, Recompute::block}) {
    options.recompute = kind;
    for (const bool split : {false, true}) {
      options.split_backward = split;
      expect_same(plain, train(options, 1));
      expect_same(plain, train(options, 5));
    }
  }
}

// Rounding may send a token near a tie to another expert, so the losses are only near.
TEST(Hybrid, TrainsInBf16) {
  KokkosStageOptions options = small_hybrid();
  const Outcome wide = train(options, 1);
  options.precision = Precision::bf16;
  const Outcome one = train(options, 1);
  expect_same(one, train(options, 3));
  ASSERT_EQ(one.losses.size(), wide.losses.size());
  EXPECT_NE(one.losses, wide.losses);
  for (std::size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(one.losses[i], wide.losses[i], 0.02) << i;
  options.recompute = Recompute::block;
  options.split_backward = true;
  expect_same(one, train(options, 2));
}

TEST(Hybrid, BalanceLossChangesTheRoutersGradientAlone) {
  KokkosStageOptions options = small_hybrid("#");
  const auto gradients_at = [&](double coefficient, std::int64_t window) {
    options.model.balance_loss = coefficient;
    options.window = window;
    Pipeline pipeline(options, 1);
    pipeline.forward(0);
    pipeline.backward(0);
    return std::pair(pipeline.take_losses(), pipeline.read(&ParameterStore::gradient));
  };
  const auto [losses, without] = gradients_at(0, 1);
  const auto [same_losses, with] = gradients_at(0.5, 1);
  EXPECT_EQ(losses, same_losses);
  const std::string router = "backbone.layers.0.mixer.gate.weight", expert = "backbone.layers.0.mixer.experts.0.up_proj.weight";
  EXPECT_NE(without.at(router), with.at(router));
  EXPECT_EQ(without.at(expert), with.at(expert));
  // As the loss, each microbatch counts by its share of the update. Halves of floats are exact.
  const auto halves = gradients_at(0.5, 2).second;
  for (std::size_t i = 0; i < with.at(router).size(); ++i) ASSERT_EQ(halves.at(router)[i], with.at(router)[i] / 2) << i;
}

TEST(Hybrid, TrainsUnderMuonAndOldWeights) {
  for (const WeightRule rule : {WeightRule::current, WeightRule::double_buffered}) {
    KokkosStageOptions options = small_hybrid();
    options.optimizer = OptimizerKind::muon;
    options.weight_rule = rule;
    expect_same(train(options, 1), train(options, 2));
  }
}

TEST(Hybrid, MemoryIsWhatWasPlanned) {
  for (const int stages : {1, 2, 4}) {
    const Pipeline pipeline(small_hybrid(), stages);
    for (const auto& stage : pipeline.stages) {
      KokkosStageOptions options = stage->options();
      EXPECT_EQ(stage->bytes(), planned_memory(options));
      options.recompute = Recompute::block;
      EXPECT_LT(planned_memory(options).activations, stage->bytes().activations);
    }
  }
}

TEST(Hybrid, SaysWhatIsWrong) {
  const auto changed = [](const auto& change) {
    ModelConfig model = all_kinds;
    change(model);
    return complaint(model);
  };
  EXPECT_EQ(complaint(all_kinds), "");
  EXPECT_THAT(changed([](ModelConfig& m) { m.layers = 4; }), HasSubstr("one letter for each of the 4 layers"));
  EXPECT_THAT(changed([](ModelConfig& m) { m.pattern = "M*X-M"; }), HasSubstr("unknown letter at position 3"));
  EXPECT_THAT(changed([](ModelConfig& m) { m.family = "llama"; }), HasSubstr("model.pattern = \"M*#-M\""));
  EXPECT_THAT(changed([](ModelConfig& m) { m.expert_choices = 5; }), HasSubstr("model.experts = 4"));
  EXPECT_THAT(changed([](ModelConfig& m) { m.state_head_size = 24; }), HasSubstr("model.width * model.state_expand = 64"));
  EXPECT_THAT(changed([](ModelConfig& m) { m.state_groups = 3; }), HasSubstr("the 4 heads"));
}

}  // namespace
}  // namespace minipipe::core::test
