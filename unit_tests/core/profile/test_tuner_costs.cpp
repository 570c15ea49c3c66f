#include <gtest/gtest.h>

#include "core/profile/tuner_costs.hpp"
#include "schedules/tune/tuner.hpp"
#include "unit_tests/core/profile/example.hpp"

namespace minipipe::core {
namespace {

ModelConfig transformers(int layers) {
  ModelConfig model;
  model.layers = layers;
  return model;
}

TEST(TunerCosts, AreMillisecondsByLayer) {
  const auto costs = tuner_costs(example_profile(Deck()), transformers(3), true);
  ASSERT_EQ(costs.size(), 3);
  EXPECT_EQ(costs.pattern, "TTT");
  EXPECT_DOUBLE_EQ(costs.layers[2].forward, 3);  // mean of 2 and 4
  EXPECT_DOUBLE_EQ(costs.layers[2].backward_input, 4);
  EXPECT_DOUBLE_EQ(costs.layers[2].backward_weight, 4);
  EXPECT_EQ(costs.layers[2].units, 1);
  EXPECT_DOUBLE_EQ(costs.embedding.forward, 0.5);
  EXPECT_DOUBLE_EQ(costs.embedding.backward_input, 0);
  EXPECT_DOUBLE_EQ(costs.embedding.backward_weight, 1);
  EXPECT_EQ(costs.embedding.units, 0);
  EXPECT_DOUBLE_EQ(costs.head.time(), 3);
  EXPECT_NEAR(costs.link, 0.010 + 0.5 * (0.25 + 0.5), 1e-12);
}

TEST(TunerCosts, LayersOfAHybridCostByTheirKind) {
  const auto costs = tuner_costs(example_hybrid_profile(), {.layers = 5, .pattern = "M*-M#"}, true);
  ASSERT_EQ(costs.size(), 5);
  EXPECT_EQ(costs.pattern, "M*-M#");
  const double milliseconds[] = {4, 1, 2, 4, 3};
  for (int l = 0; l < 5; ++l) {
    EXPECT_DOUBLE_EQ(costs.layers[l].forward, milliseconds[l]) << l;
    EXPECT_DOUBLE_EQ(costs.layers[l].backward_input, milliseconds[l]) << l;
    EXPECT_DOUBLE_EQ(costs.layers[l].backward_weight, milliseconds[l]) << l;
    EXPECT_EQ(costs.layers[l].units, 1) << l;
    EXPECT_EQ(costs.layers[l].activation_bytes, 1024 * milliseconds[l]) << l;
    EXPECT_EQ(costs.layers[l].parameter_bytes, 16 * 100 * milliseconds[l]) << l;
  }
  EXPECT_DOUBLE_EQ(costs.embedding.forward, 0.5);
  EXPECT_DOUBLE_EQ(tuner_update(example_hybrid_profile(), {.layers = 5, .pattern = "M*-M#"}, 2), (3 + 14 + 2) / 2.0);
}

TEST(TunerCosts, WholeBackwardsShareTheirOwnTime) {
  const auto costs = tuner_costs(example_profile(Deck()), transformers(1), false);
  EXPECT_DOUBLE_EQ(costs.layers[0].backward_input, 3);  // halves of 4 and 4 in a whole of 6
  EXPECT_DOUBLE_EQ(costs.layers[0].backward_weight, 3);
  EXPECT_DOUBLE_EQ(costs.embedding.backward_weight, 1);
}

TEST(TunerCosts, UpdatesAreSharedByTheDevices) {
  EXPECT_DOUBLE_EQ(tuner_update(example_profile(Deck()), transformers(5), 2), (3 + 5 * 1 + 2) / 2.0);
}

TEST(TunerCosts, OnlyOneHostNamesAMachine) {
  Profile profile = example_profile(Deck());
  EXPECT_EQ(tuner_machine(profile), "");
  profile.machine.hosts = "alpha";
  EXPECT_EQ(tuner_machine(profile), "alpha");
}

// Two heavy layers at the start get a stage of their own.
TEST(TunerCosts, APartitionOfAHybridKnowsItsKinds) {
  const auto costs = tuner_costs(example_hybrid_profile(), {.layers = 8, .pattern = "MM******"}, true);
  EXPECT_EQ(schedules::min_max_partition(costs, 2), (std::vector<int>{2, 6}));
}

// A heavy head moves blocks away from the last stage.
TEST(TunerCosts, TheTunerUsesThem) {
  Profile profile = example_profile(Deck());
  for (RankProfile& rank : profile.ranks) rank.forward.head = rank.backward_input.head = rank.backward_weight.head = 10e-3;
  schedules::TuneRequest request;
  request.profile = schedules::in_ticks(tuner_costs(profile, transformers(6), true));
  request.devices = 2;
  request.microbatches = 4;
  request.most_stages = 2;
  request.evaluations = 200;
  const auto partition = schedules::tune(request).best.partition;
  ASSERT_EQ(partition.size(), 2u);
  EXPECT_GT(partition[0], partition[1]);
}

}  // namespace
}  // namespace minipipe::core
