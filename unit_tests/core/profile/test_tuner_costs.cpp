#include <gtest/gtest.h>

#include "core/profile/tuner_costs.hpp"
#include "schedules/tune/tuner.hpp"
#include "unit_tests/core/profile/example.hpp"

namespace minipipe::core {
namespace {

TEST(TunerCosts, AreMillisecondsByLayer) {
  const auto costs = tuner_costs(example_profile(Deck()), 3, true);
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

TEST(TunerCosts, WholeBackwardsShareTheirOwnTime) {
  const auto costs = tuner_costs(example_profile(Deck()), 1, false);
  EXPECT_DOUBLE_EQ(costs.layers[0].backward_input, 3);  // halves of 4 and 4 in a whole of 6
  EXPECT_DOUBLE_EQ(costs.layers[0].backward_weight, 3);
  EXPECT_DOUBLE_EQ(costs.embedding.backward_weight, 1);
}

TEST(TunerCosts, UpdatesAreSharedByTheDevices) {
  EXPECT_DOUBLE_EQ(tuner_update(example_profile(Deck()), 5, 2), (3 + 5 * 1 + 2) / 2.0);
}

TEST(TunerCosts, OnlyOneHostNamesAMachine) {
  Profile profile = example_profile(Deck());
  EXPECT_EQ(tuner_machine(profile), "");
  profile.machine.hosts = "alpha";
  EXPECT_EQ(tuner_machine(profile), "alpha");
}

// A heavy head moves blocks away from the last stage.
TEST(TunerCosts, TheTunerUsesThem) {
  Profile profile = example_profile(Deck());
  for (RankProfile& rank : profile.ranks) rank.forward.head = rank.backward_input.head = rank.backward_weight.head = 10e-3;
  schedules::TuneRequest request;
  request.profile = schedules::in_ticks(tuner_costs(profile, 6, true));
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
