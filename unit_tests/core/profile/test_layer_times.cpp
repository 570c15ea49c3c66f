#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "core/profile/layer_times.hpp"
#include "core/profile/probe_stages.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/profile/example.hpp"

namespace minipipe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

LayerCounts blocks_of(bool embedding, int blocks, bool head) {
  ModelConfig model;
  model.layers = blocks;
  return count_layers(model, {embedding, 0, blocks, head});
}

// Stages made of layers of known times: every kind with one block and with three.
std::vector<StageTiming> timings(const LayerTimes& times, Receives receives) {
  std::vector<StageTiming> result;
  for (const int blocks : {1, 3}) {
    for (const bool embedding : {false, true}) {
      for (const bool head : {false, true}) {
        const LayerCounts layers = blocks_of(embedding, blocks, head);
        result.push_back({layers, stage_seconds(times, layers, receives)});
      }
    }
  }
  return result;
}

void expect_equal(const LayerTimes& a, const LayerTimes& b) {
  EXPECT_NEAR(a.embedding, b.embedding, 1e-12);
  for (int k = 0; k < layer_kinds; ++k) EXPECT_NEAR(a.layers[k], b.layers[k], 1e-12) << name_of(static_cast<LayerKind>(k));
  EXPECT_NEAR(a.head, b.head, 1e-12);
  EXPECT_NEAR(a.received, b.received, 1e-12);
}

// Solved, with every layer told from the others.
LayerTimes solved(const std::vector<StageTiming>& stages, Receives receives) {
  const LayerSolution solution = solve_layers(stages, receives);
  EXPECT_THAT(solution.undetermined, IsEmpty());
  return solution.times;
}

TEST(LayerTimes, ForwardIsTakenApart) {
  const LayerTimes times = transformer_times(2e-4, 5e-3, 1e-3, 3e-5);
  expect_equal(solved(timings(times, Receives::activation), Receives::activation), times);
}

TEST(LayerTimes, BackwardIsTakenApart) {
  const LayerTimes times = transformer_times(7e-4, 9e-3, 2e-3, 4e-5);
  expect_equal(solved(timings(times, Receives::gradient), Receives::gradient), times);
}

TEST(LayerTimes, UpdateReceivesNothing) {
  const LayerTimes times = transformer_times(7e-4, 9e-3, 2e-3, 0);
  expect_equal(solved(timings(times, Receives::nothing), Receives::nothing), times);
  EXPECT_DOUBLE_EQ(stage_seconds(transformer_times(0, 1, 0, 100), blocks_of(false, 2, false), Receives::nothing), 2);
}

TEST(LayerTimes, ReceivingDependsOnTheDirection) {
  const LayerTimes times = transformer_times(0, 1, 0, 100);
  EXPECT_DOUBLE_EQ(stage_seconds(times, blocks_of(false, 2, true), Receives::activation), 102);
  EXPECT_DOUBLE_EQ(stage_seconds(times, blocks_of(true, 2, false), Receives::activation), 2);
  EXPECT_DOUBLE_EQ(stage_seconds(times, blocks_of(false, 2, true), Receives::gradient), 2);
  EXPECT_DOUBLE_EQ(stage_seconds(times, blocks_of(true, 2, false), Receives::gradient), 102);
}

// Tied models have stages with both or neither: the sum is right, though it cannot be divided.
TEST(LayerTimes, EmbeddingAndHeadThatAreAlwaysTogether) {
  std::vector<StageTiming> stages;
  for (const int blocks : {1, 4}) stages.push_back({blocks_of(true, blocks, true), 3e-3 + 2e-3 * blocks});
  const LayerSolution solution = solve_layers(stages, Receives::activation);
  const LayerTimes& times = solution.times;
  EXPECT_THAT(solution.undetermined, ElementsAre("embedding + head"));
  EXPECT_NEAR(times.of(LayerKind::transformer), 2e-3, 1e-12);
  EXPECT_NEAR(times.embedding, 3e-3, 1e-12);
  EXPECT_EQ(times.head, 0);
  EXPECT_EQ(times.received, 0);
}

TEST(LayerTimes, NoTimeIsNegative) {
  auto stages = timings(transformer_times(1e-3, 5e-3, 1e-3, 0), Receives::nothing);
  // As if a stage with an embedding were faster than one without.
  for (StageTiming& stage : stages) stage.seconds -= stage.layers.embedding ? 2e-3 : 0;
  const LayerTimes times = solve_layers(stages, Receives::nothing).times;
  EXPECT_EQ(times.embedding, 0);
  EXPECT_GT(times.of(LayerKind::transformer), 4e-3);
  EXPECT_GE(times.head, 0);
}

// Three timings of one unknown that contradict each other: the heavy one decides.
TEST(LayerTimes, WeightDecidesBetweenContradictions) {
  const LayerCounts block = blocks_of(true, 1, false);
  const LayerCounts two = blocks_of(true, 2, false);
  const LayerTimes times = solve_layers({{block, 1e-3, 1e-3}, {two, 4e-3, 1.0}}, Receives::activation).times;
  EXPECT_NEAR(stage_seconds(times, two, Receives::activation), 4e-3, 1e-6);
  EXPECT_EQ(times.embedding, 0);
}

LayerTimes hybrid_times() {
  LayerTimes times{2e-4, {}, 3e-3, 3e-5};
  times.of(LayerKind::attention) = 1.3e-3;
  times.of(LayerKind::mlp) = 0.7e-3;
  times.of(LayerKind::experts) = 4e-3;
  times.of(LayerKind::state_space) = 2.1e-3;
  return times;
}

ModelConfig hybrid(const std::string& pattern) {
  ModelConfig model;
  model.family = "hybrid";
  model.pattern = pattern;
  model.layers = static_cast<int>(pattern.size());
  model.width = model.context = 32;
  model.heads = 2;
  model.vocab = 64;
  return model;
}

// As the stages of one partition of the model would be timed.
void time_partition(const ModelConfig& model, const std::vector<int>& partition, Receives receives,
                    std::vector<StageTiming>& timings) {
  for (const StageLayers& stage : partition_model(model, 32, static_cast<int>(partition.size()), partition)) {
    const LayerCounts counts = count_layers(model, stage);
    timings.push_back({counts, stage_seconds(hybrid_times(), counts, receives)});
  }
}

TEST(LayerTimes, CountsFollowThePattern) {
  const LayerCounts counts = count_layers(hybrid("M-M*M#M-"), {true, 1, 5, false});
  EXPECT_TRUE(counts.embedding);
  EXPECT_FALSE(counts.head);
  EXPECT_EQ(counts.of(LayerKind::state_space), 2);
  EXPECT_EQ(counts.of(LayerKind::mlp), 1);
  EXPECT_EQ(counts.of(LayerKind::attention), 1);
  EXPECT_EQ(counts.of(LayerKind::experts), 1);
  EXPECT_EQ(counts.of(LayerKind::transformer), 0);
  EXPECT_EQ(counts.all(), 5);
}

TEST(LayerTimes, SeveralPartitionsOfAPatternGiveItsKinds) {
  const ModelConfig model = hybrid("M-M*M#M-M*-#");
  for (const Receives receives : {Receives::activation, Receives::gradient}) {
    std::vector<StageTiming> timings;
    time_partition(model, {3, 3, 3, 3}, receives, timings);
    time_partition(model, {5, 1, 4, 2}, receives, timings);
    time_partition(model, {0, 7, 4, 1}, receives, timings);
    expect_equal(solved(timings, receives), hybrid_times());
  }
}

TEST(LayerTimes, WhatOnePartitionLeavesOpenIsReported) {
  std::vector<StageTiming> timings;
  // "M-" on every stage: only their sum is known, and goes to the kind that is named first.
  time_partition(hybrid("M-M-M-M-"), {2, 4, 2}, Receives::nothing, timings);
  const LayerSolution solution = solve_layers(timings, Receives::nothing);
  EXPECT_THAT(solution.undetermined, ElementsAre("mlp + state_space"));
  EXPECT_NEAR(solution.times.of(LayerKind::mlp), 0.7e-3 + 2.1e-3, 1e-12);
  EXPECT_EQ(solution.times.of(LayerKind::state_space), 0);
  EXPECT_NEAR(solution.times.embedding, 2e-4, 1e-12);
  EXPECT_NEAR(solution.times.head, 3e-3, 1e-12);
  // One stage of another mix decides.
  time_partition(hybrid("M-M-M-M-"), {3, 5}, Receives::nothing, timings);
  EXPECT_NEAR(solved(timings, Receives::nothing).of(LayerKind::state_space), 2.1e-3, 1e-12);
}

// Every pattern's own probe stages determine its kinds, whatever the number of stages of the run.
TEST(ProbeStages, DetermineEveryKind) {
  for (const char* pattern : {"M-M*M#M-M*-#", "M-M-M-M-", "-*-*", "*-#M", "M", "**",
                              "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", "MMMMMMMMMMM*"}) {
    const ModelConfig model = hybrid(pattern);
    for (int longest = 1; longest <= model.layers; ++longest) {
      for (const Receives receives : {Receives::activation, Receives::gradient, Receives::nothing}) {
        LayerTimes times = hybrid_times();
        if (receives == Receives::nothing) times.received = 0;
        std::vector<StageTiming> timings;
        for (const ProbeStage& probe : probe_stages(model, longest)) {
          const StageLayers& run = probe.layers;
          const ModelConfig longer = with_layers(model, run.first_block + run.blocks);
          const LayerCounts counts = count_layers(longer, run);
          timings.push_back({counts, stage_seconds(times, counts, receives), probe.large ? 1.0 : 0.1});
        }
        const LayerTimes found = solved(timings, receives);
        for (int k = 0; k < layer_kinds; ++k) {
          const auto kind = static_cast<LayerKind>(k);
          const bool there = count_layers(model).of(kind) > 0;
          EXPECT_NEAR(found.of(kind), there ? times.of(kind) : 0, 1e-9) << pattern << " " << longest << " " << name_of(kind);
        }
        EXPECT_NEAR(found.embedding, times.embedding, 1e-9) << pattern << " " << longest;
        EXPECT_NEAR(found.head, times.head, 1e-9) << pattern << " " << longest;
        EXPECT_NEAR(found.received, times.received, 1e-9) << pattern << " " << longest;
      }
    }
  }
}

// A noise of 1 % in each timing leaves the times of a stage of the real size within 2 %.
TEST(ProbeStages, NoiseIsNotMagnified) {
  const ModelConfig model = hybrid("M-M*M#M-M*-#");
  std::vector<StageTiming> timings;
  int number = 0;
  for (const ProbeStage& probe : probe_stages(model, 6)) {
    const LayerCounts counts = count_layers(model, probe.layers);
    const double noise = 0.01 * (++number % 3 - 1);
    timings.push_back(
        {counts, stage_seconds(hybrid_times(), counts, Receives::activation) * (1 + noise), probe.large ? 1.0 : 0.1});
  }
  const LayerTimes found = solved(timings, Receives::activation);
  for (int first = 0; first + 5 <= model.layers; ++first) {
    const LayerCounts counts = count_layers(model, {first == 0, first, 5, first + 5 == model.layers});
    const double exact = stage_seconds(hybrid_times(), counts, Receives::activation);
    EXPECT_NEAR(stage_seconds(found, counts, Receives::activation), exact, 0.02 * exact) << first;
  }
}

TEST(ProbeStages, WithoutAPatternBlocksOfBothSizesWithBothEnds) {
  ModelConfig model;
  model.layers = 12;
  const auto stages = probe_stages(model, 6);
  ASSERT_EQ(stages.size(), 8u);
  EXPECT_EQ(stages[0].layers, (StageLayers{true, 0, 1, true}));
  EXPECT_EQ(stages[7].layers, (StageLayers{false, 0, 6, true}));
  EXPECT_TRUE(stages[7].large);
  model.tied = true;
  EXPECT_EQ(probe_stages(model, 1).size(), 2u);
}

TEST(ProbeStages, ATiedHybridHasBothEndsEverywhere) {
  ModelConfig model = hybrid("M-M*");
  model.tied = true;
  std::vector<StageTiming> timings;
  for (const ProbeStage& probe : probe_stages(model, 4)) {
    EXPECT_TRUE(probe.layers.embedding && probe.layers.head);
    const LayerCounts counts = count_layers(model, probe.layers);
    timings.push_back({counts, stage_seconds(hybrid_times(), counts, Receives::activation)});
  }
  const LayerSolution solution = solve_layers(timings, Receives::activation);
  EXPECT_THAT(solution.undetermined, ElementsAre("embedding + head"));
  EXPECT_NEAR(solution.times.of(LayerKind::attention), 1.3e-3, 1e-9);
}

TEST(ProbeStages, EachRankMakesAllProbesAndNeighboursMakeOthers) {
  constexpr int rounds = 3;
  for (const std::size_t probes : {4U, 7U, 24U}) {
    for (int rank = 0; rank < 9; ++rank) {
      std::set<std::size_t> distances;
      for (int round = 0; round < rounds; ++round) {
        std::set<std::size_t> made;
        for (std::size_t turn = 0; turn < probes; ++turn) {
          const std::size_t mine = probe_of_turn(turn, probes, round, rounds, rank);
          made.insert(mine);
          distances.insert((probe_of_turn(turn, probes, round, rounds, rank + 1) + probes - mine) % probes);
        }
        EXPECT_EQ(made.size(), probes);
        EXPECT_LT(*made.rbegin(), probes);
      }
      EXPECT_EQ(distances.size(), static_cast<std::size_t>(rounds)) << "of neighbours: another one in each round";
      EXPECT_EQ(distances.count(0), 0U);
    }
  }
}

TEST(LayerTimes, NothingTimedIsAnError) {
  EXPECT_THROW(solve_layers({}, Receives::nothing), RunError);
  EXPECT_THROW(solve_layers({{blocks_of(true, 1, false), 0.0}}, Receives::nothing), RunError);
  EXPECT_THROW(solve_layers({{blocks_of(true, 1, false), std::numeric_limits<double>::quiet_NaN()}}, Receives::nothing),
               RunError);
}

}  // namespace
}  // namespace minipipe::core
