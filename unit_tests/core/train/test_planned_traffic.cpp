#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "core/model/replica_layout.hpp"
#include "core/train/planned_traffic.hpp"
#include "core/train/preflight.hpp"
#include "unit_tests/core/train/decks.hpp"

namespace minipipe::core {
namespace {

using Sum = std::map<std::string, double>;

// Over all ranks.
Sum sum_of(const Deck& deck, int stages) {
  Sum sum;
  for (const PlannedTraffic& rank : planned_traffic(deck, stages)) {
    for (const auto& [purpose, bytes] : rank) sum[purpose] += bytes;
  }
  return sum;
}

Deck deck_of(std::vector<std::string> overrides) {
  overrides.push_back("parallel.data=4");
  return tests::small_deck(overrides);
}

double ring_bytes(const Bucket& bucket) { return 4.0 * bucket.floats * (std::ssize(bucket.holders) - 1); }

ReplicaLayout layout_of(const Deck& deck, int stages, int stage) {
  const KokkosStageOptions options = stage_options(deck, stage_layers(deck, stages), stage);
  return {options.model, options.layers, options.replication};
}

// What a reduction of all buckets over rings sends in all.
double ring_bytes(const Deck& deck, int stages) {
  double bytes = 0;
  for (int s = 0; s < stages; ++s) {
    for (const Bucket& bucket : layout_of(deck, stages, s).buckets) bytes += ring_bytes(bucket);
  }
  return bytes;
}

// The same by layer of a single stage.
std::vector<double> layer_ring_bytes(const Deck& deck) {
  std::vector<double> result;
  for (const auto& layer : layout_of(deck, 1, 0).layers) {
    result.push_back(0);
    for (const Bucket& bucket : layer) result.back() += ring_bytes(bucket);
  }
  return result;
}

TEST(PlannedTraffic, OneRankSendsNothing) {
  const auto ranks = planned_traffic(tests::small_deck(), 1);
  ASSERT_EQ(ranks.size(), 1U);
  for (const auto& [purpose, bytes] : ranks[0]) EXPECT_EQ(bytes, 0) << purpose;
}

TEST(PlannedTraffic, StagesSendActivationsAndGradients) {
  const Deck deck = tests::small_deck();
  const auto ranks = planned_traffic(deck, 4);
  const double message = 4.0 * message_floats(deck) * deck.train.microbatches;
  ASSERT_EQ(ranks.size(), 4U);
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(ranks[r][0].first, "pipeline");
    EXPECT_EQ(ranks[r][0].second, r == 0 || r == 3 ? message : 2 * message);
  }
}

TEST(PlannedTraffic, NeighboursOnOneRankSendNoMessages) {
  const Deck deck = tests::small_deck({"schedule.name=zb-v"});
  const auto ranks = planned_traffic(deck, 4);
  ASSERT_EQ(ranks.size(), 2U);
  const double message = 4.0 * message_floats(deck) * deck.train.microbatches;
  // Stages 0 and 3 on one rank, 1 and 2 on the other: edges 0-1 and 2-3 are messages, in both directions.
  EXPECT_EQ(ranks[0][0].second, 2 * message);
  EXPECT_EQ(ranks[1][0].second, 2 * message);
}

TEST(PlannedTraffic, WholeGradients) {
  for (const char* mode : {"ddp", "zero1"}) {
    for (const int stages : {1, 2}) {
      const Deck deck = deck_of({std::string("parallel.mode=") + mode});
      const double ring = ring_bytes(deck, stages);
      Sum sum = sum_of(deck, stages);
      EXPECT_GT(ring, 0);
      EXPECT_EQ(sum["reduce_scatter"], ring);
      EXPECT_EQ(sum[deck.parallel.mode == "ddp" ? "all_gather" : "parameter_gather"], ring);
      EXPECT_EQ(sum["all_gather"] + sum["parameter_gather"], ring);
      EXPECT_EQ(sum["norm"] + sum["refresh"] + sum["average"], 0);
    }
  }
}

// One stage of embedding (0), blocks (1 .. 8) and head (9), a forward and its backward in turn, two buffers: a backward still
// finds 9 and 8, and a later forward of the same update still finds 1.
TEST(PlannedTraffic, LayersInTheirBuffersAreNotGatheredAgain) {
  for (const int microbatches : {1, 4}) {
    const Deck deck =
        deck_of({"parallel.mode=fsdp", "parallel.fsdp_reduce=window", "train.microbatches=" + std::to_string(microbatches)});
    double expected = 0;
    const std::vector<double> ring = layer_ring_bytes(deck);
    ASSERT_EQ(ring.size(), 10U);
    for (std::size_t layer = 0; layer < ring.size(); ++layer) {
      const bool once = layer == 0 || layer >= 8;
      expected += ring[layer] * (once ? microbatches : layer == 1 ? microbatches + 1 : 2 * microbatches);
    }
    EXPECT_EQ(sum_of(deck, 1)["parameter_gather"], expected);
    EXPECT_EQ(sum_of(deck, 1)["all_gather"], 0);
  }
}

TEST(PlannedTraffic, ShardedGradientsTravelPerMicrobatchOrWindow) {
  for (const std::string reduce : {"microbatch", "window"}) {
    const Deck deck = deck_of({"parallel.mode=fsdp", "parallel.fsdp_reduce=" + reduce});
    double ring = 0;
    for (const double layer : layer_ring_bytes(deck)) ring += layer;
    EXPECT_EQ(sum_of(deck, 1)["reduce_scatter"], (reduce == "window" ? 1 : 4) * ring);
  }
}

TEST(PlannedTraffic, SdpSendsAmongHolders) {
  const Deck ddp = deck_of({"parallel.mode=ddp"});
  const std::vector<std::string> half{"parallel.mode=sdp", "sdp.coverage=0.5"};
  const Deck forward = deck_of(half);
  Sum sum = sum_of(forward, 1);
  EXPECT_EQ(sum["reduce_scatter"], ring_bytes(forward, 1));
  EXPECT_EQ(sum["all_gather"], ring_bytes(forward, 1));
  EXPECT_LT(ring_bytes(forward, 1), ring_bytes(ddp, 1));

  // Units are held by two of four: the other two get them from one holder, every `refresh` updates of 12.
  auto backward = half;
  backward.push_back("sdp.masking=backward");
  const double refresh = sum_of(deck_of(backward), 1)["refresh"];
  EXPECT_GT(refresh, 0);
  // Each of the four pairs of holders has two of eight blocks: every replica sends a pair of blocks.
  for (const PlannedTraffic& rank : planned_traffic(deck_of(backward), 1)) {
    const auto told = std::find_if(rank.begin(), rank.end(), [](const auto& sent) { return sent.first == "refresh"; });
    EXPECT_DOUBLE_EQ(told->second, refresh / 4);
  }
  backward.push_back("sdp.refresh=5");
  EXPECT_DOUBLE_EQ(sum_of(deck_of(backward), 1)["refresh"], refresh * 2 / 12);

  auto averages = half;
  averages.insert(averages.end(), {"sdp.sync=parameter", "sdp.period=4"});
  sum = sum_of(deck_of(averages), 1);
  EXPECT_DOUBLE_EQ(sum["average"], 2 * ring_bytes(forward, 1) / 4);
  EXPECT_EQ(sum["reduce_scatter"] + sum["all_gather"], 0);
}

// Of each stage one layout for all replicas, whose tensors are placed once where replicas are alike, and with SDP once for each
// set of units that comes after another one: the work of a plan grows with the number of replicas, not with its square.
TEST(PlannedTraffic, LayoutsAreMadeOnceForAllReplicas) {
  struct Expected {
    std::vector<std::string> overrides;
    int placed;
  };
  const std::vector<Expected> cases{{{"parallel.mode=ddp"}, 2},
                                    {{"parallel.mode=zero1"}, 2},
                                    {{"parallel.mode=fsdp"}, 2},
                                    {{"parallel.mode=sdp", "sdp.coverage=0.5"}, 2 * 4}};
  for (const Expected& expected : cases) {
    for (const int replicas : {16, 128}) {
      auto overrides = expected.overrides;
      overrides.push_back("parallel.data=" + std::to_string(replicas));
      const Deck deck = tests::small_deck(overrides);
      auto before = ReplicaLayout::work();
      const auto told = [&before] {
        const auto now = ReplicaLayout::work();
        const ReplicaLayout::Work work{now.made - before.made, now.placed - before.placed};
        before = now;
        return work;
      };
      EXPECT_EQ(planned_traffic(deck, 2).size(), 2U * replicas);
      const auto traffic = told();
      EXPECT_EQ(traffic.made, 2) << overrides[0] << replicas;
      EXPECT_LE(traffic.placed, expected.placed + 2) << overrides[0] << replicas;
      EXPECT_EQ(planned_memory_by_replica(deck, 2).size(), 1U * replicas);
      const auto memory = told();
      EXPECT_EQ(memory.made, 2) << overrides[0] << replicas;
      EXPECT_LE(memory.placed, expected.placed + 2) << overrides[0] << replicas;
    }
  }
}

TEST(PlannedTraffic, ClippingByStageAddsASumPerTensor) {
  const Deck deck = deck_of({"train.clip=stage"});
  const ReplicaLayout layout = layout_of(deck, 1, 0);
  EXPECT_EQ(sum_of(deck, 1)["norm"], 4 * 3 * 8.0 * static_cast<double>(layout.full.size()));
}

}  // namespace
}  // namespace minipipe::core
