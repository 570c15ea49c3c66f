#include <gtest/gtest.h>

#include "core/profile/machine.hpp"
#include "core/profile/measure.hpp"

namespace minipipe::core {
namespace {

class Counting : public BatchSource {
 public:
  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override {
    for (int i = 0; i < 2 * 8; ++i) {
      if (tokens != nullptr) tokens[i] = static_cast<std::int32_t>((microbatch + i) % 11);
      if (targets != nullptr) targets[i] = static_cast<std::int32_t>((microbatch + i + 1) % 11);
    }
  }
};

// A model so small that most of the time is the cost of a call: what can be asserted is that all was measured.
TEST(Measure, OneRank) {
  Deck deck;
  deck.model = {.family = "gpt2", .layers = 2, .width = 16, .heads = 2, .vocab = 11, .context = 8};
  deck.train.sequence = 8;
  deck.train.microbatch_size = 2;
  deck.train.microbatches = 2;
  deck.schedule.name = "paci";
  Counting source;
  const Profile profile = measure_profile(deck, source, MPI_COMM_WORLD, [] {});
  EXPECT_EQ(profile.model, model_fingerprint(deck));
  EXPECT_EQ(profile.machine.hosts, this_machine().hosts);
  EXPECT_EQ(profile.message_bytes, 2 * 8 * 16 * 4);
  EXPECT_EQ(profile.embedding.parameters, 11 * 16 + 8 * 16);
  EXPECT_EQ(profile.head.parameters, 2 * 16 + 11 * 16);
  EXPECT_GT(profile.layers[static_cast<std::size_t>(LayerKind::transformer)].activations, 2 * 8 * 16 * 4);
  EXPECT_EQ(profile.undetermined, "");
  ASSERT_EQ(profile.ranks.size(), 1U);
  const RankProfile& rank = profile.ranks[0];
  for (const LayerTimes* times : {&rank.forward, &rank.backward, &rank.backward_input, &rank.backward_weight, &rank.update}) {
    EXPECT_GT(times->of(LayerKind::transformer), 0);
    EXPECT_GE(times->embedding, 0);
    EXPECT_GE(times->head, 0);
  }
  EXPECT_GT(rank.message_copy, 0);
  EXPECT_EQ(profile.link.one_way, 0) << "there is no neighbour";
}

TEST(Measure, KindsOfAHybrid) {
  Deck deck;
  deck.model = {.family = "hybrid", .layers = 3, .width = 16, .heads = 2, .vocab = 11, .context = 8, .pattern = "-*-"};
  deck.train.sequence = 8;
  deck.train.microbatch_size = 2;
  deck.train.microbatches = 2;
  Counting source;
  const Profile profile = measure_profile(deck, source, MPI_COMM_WORLD, [] {});
  EXPECT_EQ(profile.undetermined, "");
  const RankProfile& rank = profile.ranks.at(0);
  double sum = 0;
  for (const LayerTimes* times : {&rank.forward, &rank.backward, &rank.backward_input, &rank.backward_weight, &rank.update}) {
    for (const LayerKind kind : {LayerKind::attention, LayerKind::mlp}) sum += times->of(kind);
    EXPECT_EQ(times->of(LayerKind::transformer), 0);
    EXPECT_EQ(times->of(LayerKind::state_space), 0);
  }
  EXPECT_GT(sum, 0);
  EXPECT_TRUE(profile.has(LayerKind::attention));
  EXPECT_TRUE(profile.has(LayerKind::mlp));
  EXPECT_FALSE(profile.has(LayerKind::experts));
}

}  // namespace
}  // namespace minipipe::core
