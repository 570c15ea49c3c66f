// What users of other pipelines ran into: layers left out, empty stages, remainders in one place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "schedules/error.hpp"
#include "schedules/simulate/steady_step.hpp"
#include "schedules/tune/tuner.hpp"
#include "unit_tests/schedules/tune/profiles.hpp"

namespace minipipe::schedules {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

int sum(const std::vector<int>& values) { return std::accumulate(values.begin(), values.end(), 0); }

TEST(Partition, AnyLayersOverAnyStages) {
  for (int layers = 1; layers <= 48; ++layers) {
    const CostProfile profile = equal_layers(layers, 1, 1, 1);
    for (int stages = 1; stages <= layers; ++stages) {
      for (const auto& partition : {uniform_partition(layers, stages), min_max_partition(profile, stages)}) {
        ASSERT_EQ(partition.size(), static_cast<std::size_t>(stages));
        ASSERT_EQ(sum(partition), layers);
        const auto [least, most] = std::minmax_element(partition.begin(), partition.end());
        ASSERT_GE(*least, 1) << layers << " layers, " << stages << " stages";
        ASSERT_LE(*most - *least, 1) << "the remainder is spread: " << layers << " layers, " << stages << " stages";
      }
    }
    EXPECT_THROW(uniform_partition(layers, layers + 1), InputError);
    EXPECT_THROW(min_max_partition(profile, layers + 1), InputError);
  }
  EXPECT_THROW(uniform_partition(4, 0), InputError);
}

// Against all partitions of small models.
TEST(Partition, MinMaxIsTheBestThereIs) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    const int layers = 2 + static_cast<int>(random() % 7);
    CostProfile profile;
    profile.clock = Clock::ticks;
    for (int i = 0; i < layers; ++i) profile.layers.push_back({1.0 + random() % 9, 1.0 + random() % 9, 1.0 + random() % 3});
    if (trial % 2 == 0) profile.head = {1.0 + random() % 20, 1.0 + random() % 20, 0, 0};
    const CostSums sums(profile);
    const auto longest = [&](const std::vector<int>& partition) {
      double most = 0;
      for (const LayerCosts& stage : sums.stages(partition)) most = std::max(most, stage.time());
      return most;
    };
    for (int stages = 1; stages <= layers; ++stages) {
      double best = 1e9;
      std::vector<int> partition(static_cast<std::size_t>(stages), 0);
      const auto all = [&](auto&& self, std::size_t s, int left) -> void {
        if (s + 1 == partition.size()) {
          const bool may_be_empty = stages > 1 && profile.has_head();
          if (left < (may_be_empty ? 0 : 1)) return;
          partition[s] = left;
          best = std::min(best, longest(partition));
          return;
        }
        for (partition[s] = 1; partition[s] <= left; ++partition[s]) self(self, s + 1, left - partition[s]);
      };
      all(all, 0, layers);
      EXPECT_EQ(longest(min_max_partition(profile, stages)), best) << layers << " layers, " << stages << " stages";
    }
  }
}

TEST(Partition, AnEmbeddingThatCostsTwoLayersCountsAsTwo) {
  CostProfile profile = equal_layers(10, 1, 1, 1);
  profile.embedding = {2, 2, 2, 0};
  EXPECT_THAT(min_max_partition(profile, 4), ElementsAre(1, 3, 3, 3));
}

// Whatever fits together gives a whole, legal plan: layers that do not divide, fewer microbatches than devices, microbatches
// that are no multiple of them.
TEST(Partition, TunedPlansOfOddSizesAreWhole) {
  for (const auto& [layers, devices, microbatches] :
       {std::array{30, 4, 5}, std::array{40, 16, 3}, std::array{42, 16, 16}, std::array{38, 8, 7}, std::array{5, 4, 1}}) {
    TuneRequest request;
    request.profile = equal_layers(layers, 1, 1, 1);
    request.devices = devices;
    request.microbatches = microbatches;
    request.evaluations = 300;
    TuneResult result = tune(request);
    result.baselines.push_back(result.best);
    for (const TunedPlan& plan : result.baselines) {
      EXPECT_EQ(sum(plan.partition), layers) << plan.name;
      EXPECT_GE(*std::min_element(plan.partition.begin(), plan.partition.end()), 1) << plan.name;
      ASSERT_EQ(plan.placement.rank_of_stage.size(), plan.partition.size()) << plan.name;
      for (int d = 0; d < devices; ++d) EXPECT_FALSE(plan.placement.stages_of(d).empty()) << plan.name;
      const auto graph = make_graph(CostSums(request.profile), plan.partition, plan.placement, microbatches);
      double work = 0;
      for (const double compute : simulate_graph(graph, plan.order).compute) work += compute;
      EXPECT_EQ(work, 3.0 * layers * microbatches) << plan.name << ": every layer is computed once per microbatch";
    }
  }
}

// The best baseline is compared with, not the first: more chunks help interleaving here, until they do not divide.
TEST(Baselines, InterleavedHasItsBestNumberOfChunks) {
  TuneRequest request;
  request.profile = equal_layers(32, 10, 10, 10);
  request.devices = 4;
  request.microbatches = 8;
  request.evaluations = 10;
  for (const TunedPlan& plan : baselines(request)) {
    if (plan.name != "interleaved") continue;
    EXPECT_EQ(plan.partition.size(), 32u);
    // 8 chunks: work plus the bubble of three of the smallest stages.
    EXPECT_EQ(plan.makespan, 8 * 8 * 30 + 3 * 30);
    return;
  }
  FAIL() << "no interleaved baseline";
}

// Messages take their time out of the schedule's own gaps; no formula adds them.
TEST(UpdateGraph, MessagesCountOnlyWhereNothingHidesThem) {
  const auto makespan = [](int microbatches, double link) {
    CostProfile profile = equal_layers(4, 10, 10, 10);
    profile.link = link;
    TuneRequest request;
    request.profile = profile;
    request.devices = 4;
    request.microbatches = microbatches;
    return baselines(request).front().makespan;  // 1f1b
  };
  EXPECT_EQ(makespan(1, 3) - makespan(1, 0), 6 * 3) << "there and back over three links";
  // The steady state of 1F1B has the round trip to the next stage in every period: more than fill and drain alone.
  EXPECT_GT(makespan(16, 3) - makespan(16, 0), 6 * 3);
}

// Eight stages, the last with the head: 6.65 times the speed of one device, not 8.
TEST(SteadyStep, AHeavyLastStageBoundsTheSpeedUp) {
  Costs costs = Costs::equal(8, 1.05, 1.05, 1.05);
  costs.forward.back() = costs.backward_input.back() = costs.backward_weight.back() = 1.30;
  ScheduleOptions options;
  options.name = "paci";
  options.stages = 8;
  options.window = 8;
  const SteadyStep step = steady_step(options, costs);
  EXPECT_NEAR(8 * (7 * 3.15 + 3.90) / step.time, 6.65, 0.01);
}

}  // namespace
}  // namespace minipipe::schedules
