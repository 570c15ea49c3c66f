#include <gtest/gtest.h>

#include "core/profile/use_profile.hpp"
#include "core/train/options.hpp"
#include "core/train/planned_traffic.hpp"
#include "core/train/preflight.hpp"
#include "unit_tests/core/profile/example.hpp"

namespace minipipe::core {
namespace {

Deck deck_of(const std::string& schedule, int layers, std::int64_t microbatches) {
  Deck deck;
  deck.model.layers = layers;
  deck.schedule.name = schedule;
  deck.train.microbatches = microbatches;
  return effective_deck(deck);
}

// Blocks alone cost time: stages are equal, and the closed forms hold.
Profile blocks_only(const Deck& deck) {
  Profile profile = example_profile(deck);
  RankProfile rank;
  rank.forward.of(LayerKind::transformer) = 1e-3;
  rank.backward.of(LayerKind::transformer) = 2e-3;
  rank.backward_input.of(LayerKind::transformer) = 1e-3;
  rank.backward_weight.of(LayerKind::transformer) = 1e-3;
  profile.ranks = {rank};
  profile.link = {};
  return profile;
}

TEST(UseProfile, CostsAddUpByLayer) {
  Deck deck = deck_of("1f1b", 4, 4);
  deck.schedule.partition = {1, 3};
  const auto costs = profiled_costs(example_profile(deck), deck, 2);
  EXPECT_DOUBLE_EQ(costs.forward[0], 0.5e-3 + 3e-3 + 1e-6);              // embedding, block (mean of 2 and 4), send
  EXPECT_DOUBLE_EQ(costs.forward[1], 3 * 3e-3 + 1e-3 + 0.25e-3 + 2e-6);  // blocks, head, copy, take
  EXPECT_NEAR(costs.backward_input[0] + costs.backward_weight[0], 1e-3 + 6e-3 + 0.5e-3 + 2e-6, 1e-12);
  EXPECT_NEAR(costs.backward_input[1] + costs.backward_weight[1], 3 * 6e-3 + 2e-3 + 1e-6, 1e-12);
  EXPECT_DOUBLE_EQ(costs.update[0], 4e-3);
  EXPECT_DOUBLE_EQ(costs.update[1], 5e-3);
  EXPECT_NEAR(costs.latency, 7e-6, 1e-15);
}

TEST(UseProfile, StagesOfAHybridCostByTheirLayers) {
  Deck deck = example_hybrid();
  deck.schedule.name = "1f1b";
  deck.schedule.partition = {1, 3};
  const auto costs = profiled_costs(example_hybrid_profile(), deck, 2);
  EXPECT_DOUBLE_EQ(costs.forward[0], 0.5e-3 + 1e-3 + 1e-6);
  EXPECT_DOUBLE_EQ(costs.forward[1], 2e-3 + 3e-3 + 4e-3 + 1e-3 + 0.25e-3 + 2e-6);
  EXPECT_NEAR(costs.backward_input[1] + costs.backward_weight[1], 9e-3 + 2e-3 + 1e-6, 1e-12);
  EXPECT_DOUBLE_EQ(costs.update[0], 1e-3 + 3e-3);
  EXPECT_DOUBLE_EQ(costs.update[1], 9e-3 + 2e-3);
}

// Four layers on one stage of two replicas.
TEST(UseProfile, AReplicaTakesTheTimeOfWhatItHolds) {
  Deck deck = deck_of("1f1b", 4, 4);
  Profile profile = example_profile(deck);
  profile.link = {};  // what replicas exchange is not asked for here
  const auto whole = profiled_costs(profile, deck, 1);
  deck.parallel.data = 2;
  const auto with = [&](const std::string& masking, const std::string& unit) {
    deck.parallel.mode = "sdp";
    deck.sdp.unit = unit;
    deck.sdp.neuron_groups = 4;
    deck.sdp.masking = masking;
    return profiled_costs(profile, deck, 1);
  };
  deck.sdp.coverage = 1;
  EXPECT_DOUBLE_EQ(with("forward", "block").forward[0], whole.forward[0]);
  EXPECT_DOUBLE_EQ(with("forward", "block").update[0], whole.update[0]);

  // Three blocks of four, and the ends; the two halves of a whole backward, 8 ms a block, take 6 ms.
  deck.sdp.coverage = 0.75;
  const auto forward = with("forward", "block");
  EXPECT_DOUBLE_EQ(forward.forward[0], 0.5e-3 + 3 * 3e-3 + 1e-3);
  const double together = (1e-3 + 4 * 6e-3 + 2e-3) / (4 * 8e-3 + 3e-3);
  EXPECT_NEAR(forward.backward_input[0], (3 * 4e-3 + 1e-3) * together, 1e-12);
  EXPECT_NEAR(forward.backward_weight[0], (1e-3 + 3 * 4e-3 + 1e-3) * together, 1e-12);
  EXPECT_LT(forward.update[0], whole.update[0]);
  EXPECT_GT(forward.update[0], 0.75 * whole.update[0]);
  // The whole forward, but the weight halves and updates of what is held only.
  const auto backward = with("backward", "block");
  EXPECT_DOUBLE_EQ(backward.forward[0], whole.forward[0]);
  EXPECT_DOUBLE_EQ(backward.backward_input[0], whole.backward_input[0]);
  EXPECT_DOUBLE_EQ(backward.backward_weight[0], forward.backward_weight[0]);
  EXPECT_DOUBLE_EQ(backward.update[0], forward.update[0]);
  // A quarter of each MLP is less than a quarter of each block.
  const auto neurons = with("forward", "neuron");
  EXPECT_GT(neurons.forward[0], forward.forward[0]);
  EXPECT_LT(neurons.forward[0], whole.forward[0]);

  deck.sdp = {};
  for (const char* mode : {"zero1", "fsdp"}) {
    deck.parallel.mode = mode;
    const auto sharded = profiled_costs(profile, deck, 1);
    EXPECT_DOUBLE_EQ(sharded.forward[0], whole.forward[0]) << mode;
    EXPECT_NEAR(sharded.update[0], whole.update[0] / 2, 0.01 * whole.update[0]) << mode;  // shards are of whole lines
  }
}

TEST(UseProfile, SplitSchedulesUseTheHalves) {
  const Deck deck = deck_of("zb-h1", 2, 4);
  const auto costs = profiled_costs(example_profile(deck), deck, 2);
  EXPECT_NEAR(costs.backward_input[0], 4e-3 + 0.5e-3 + 2e-6, 1e-12);
  EXPECT_NEAR(costs.backward_weight[0], 4e-3 + 1e-3, 1e-12);
}

TEST(UseProfile, OlderWeightsCostTimeAtAnUpdate) {
  const Deck plain = deck_of("1f1b", 2, 4);
  const Deck buffered = deck_of("pipedream-2bw", 2, 4);
  const Deck corrected = deck_of("pipemare", 2, 4);
  const Profile profile = example_profile(plain);
  const double base = profiled_costs(profile, plain, 2).update[0];
  EXPECT_NEAR(profiled_costs(profile, buffered, 2).update[0] - base, 1200 * 1e-9, 1e-15);
  EXPECT_NEAR(profiled_costs(profile, corrected, 2).update[0] - base, 1200 * 2e-9, 1e-15);
}

TEST(UseProfile, ReplicasExchangeAtTheUpdate) {
  Deck deck = deck_of("1f1b", 2, 4);
  deck.run.steps = 10;
  Profile profile = example_profile(deck);
  profile.link.bytes_per_s = 1e8;
  profile.link.latency = 3e-6;
  const auto alone = profiled_costs(profile, deck, 2);
  deck.parallel.data = 3;
  const auto together = profiled_costs(profile, deck, 2);
  const auto traffic = planned_traffic(deck, 2);
  for (std::size_t stage = 0; stage < 2; ++stage) {
    const double bytes = most_exchanged({traffic[stage], traffic[stage + 2], traffic[stage + 4]});
    EXPECT_GT(bytes, 0);
    EXPECT_NEAR(together.update[stage] - alone.update[stage], bytes / 1e8 + 4 * 3e-6, 1e-12);
    EXPECT_EQ(together.forward[stage], alone.forward[stage]);
  }
  EXPECT_GT(predict_steady(deck, 2, together).step_time, predict_steady(deck, 2, alone).step_time);
  profile.link = {};
  EXPECT_EQ(exchange_seconds(profile, deck, 2), (std::vector<double>{0, 0}));
}

TEST(UseProfile, StagesOfOneRankCopy) {
  Deck deck = deck_of("interleaved", 4, 4);
  deck.schedule.chunks = 2;
  const Profile profile = example_profile(deck);
  Deck zbv = deck_of("zb-v", 4, 4);
  // Stages 1 and 2 of a V over two ranks are neighbours on one rank.
  const auto looped = profiled_costs(profile, deck, 4);
  const auto vee = profiled_costs(profile, zbv, 4);
  EXPECT_NEAR(looped.forward[2], 3e-3 + 0.25e-3 + 2e-6 + 1e-6, 1e-12);
  EXPECT_NEAR(vee.forward[2], 3e-3 + 0.25e-3 + 1e-5 + 1e-6, 1e-12);
}

TEST(UseProfile, ClosedFormOfFlushSchedules) {
  for (const char* name : {"gpipe", "1f1b"}) {
    const Deck deck = deck_of(name, 4, 8);
    const auto steady = predict_steady(deck, 4, profiled_costs(blocks_only(deck), deck, 4));
    EXPECT_NEAR(steady.step_time, 3e-3 * (8 + 3), 1e-9) << name;
    EXPECT_NEAR(steady.bubble_share, 3.0 / 11.0, 1e-9) << name;
    EXPECT_NEAR(steady.tokens_per_s, 8 * 2 * 64 / (3e-3 * 11), 1e-3) << name;
  }
}

TEST(UseProfile, PaciHasNoBubbleInTheSteadyState) {
  Deck deck = deck_of("paci", 4, 2);
  deck.schedule.synchronous_updates = 1000;  // the prediction is for what comes after them
  const auto steady = predict_steady(deck, 4, profiled_costs(blocks_only(deck), deck, 4));
  EXPECT_NEAR(steady.step_time, 2 * 3e-3, 1e-9);
  EXPECT_NEAR(steady.bubble_share, 0, 1e-9);
}

TEST(UseProfile, PeakBytesAreThePlannedOnesByRank) {
  Deck deck = deck_of("interleaved", 4, 4);
  deck.schedule.chunks = 2;
  const auto stages = planned_memory_by_stage(deck, 4);
  const auto ranks = planned_peak_bytes(deck, 4);
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0], stages[0].total() + stages[2].total());
  EXPECT_EQ(ranks[1], stages[1].total() + stages[3].total());
}

}  // namespace
}  // namespace minipipe::core
