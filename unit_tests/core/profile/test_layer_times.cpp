#include <gtest/gtest.h>

#include <limits>

#include "core/profile/layer_times.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

// Stages made of layers of known times: every kind with one block and with three.
std::vector<StageTiming> timings(const LayerTimes& times, Receives receives) {
  std::vector<StageTiming> result;
  for (const int blocks : {1, 3}) {
    for (const bool embedding : {false, true}) {
      for (const bool head : {false, true}) {
        const StageLayers layers{embedding, 0, blocks, head};
        result.push_back({layers, stage_seconds(times, layers, receives)});
      }
    }
  }
  return result;
}

void expect_equal(const LayerTimes& a, const LayerTimes& b) {
  EXPECT_NEAR(a.embedding, b.embedding, 1e-12);
  EXPECT_NEAR(a.block, b.block, 1e-12);
  EXPECT_NEAR(a.head, b.head, 1e-12);
  EXPECT_NEAR(a.received, b.received, 1e-12);
}

TEST(LayerTimes, ForwardIsTakenApart) {
  const LayerTimes times{2e-4, 5e-3, 1e-3, 3e-5};
  expect_equal(solve_layers(timings(times, Receives::activation), Receives::activation), times);
}

TEST(LayerTimes, BackwardIsTakenApart) {
  const LayerTimes times{7e-4, 9e-3, 2e-3, 4e-5};
  expect_equal(solve_layers(timings(times, Receives::gradient), Receives::gradient), times);
}

TEST(LayerTimes, UpdateReceivesNothing) {
  const LayerTimes times{7e-4, 9e-3, 2e-3, 0};
  expect_equal(solve_layers(timings(times, Receives::nothing), Receives::nothing), times);
  EXPECT_DOUBLE_EQ(stage_seconds({0, 1, 0, 100}, {false, 0, 2, false}, Receives::nothing), 2);
}

TEST(LayerTimes, ReceivingDependsOnTheDirection) {
  const LayerTimes times{0, 1, 0, 100};
  EXPECT_DOUBLE_EQ(stage_seconds(times, {false, 0, 2, true}, Receives::activation), 102);
  EXPECT_DOUBLE_EQ(stage_seconds(times, {true, 0, 2, false}, Receives::activation), 2);
  EXPECT_DOUBLE_EQ(stage_seconds(times, {false, 0, 2, true}, Receives::gradient), 2);
  EXPECT_DOUBLE_EQ(stage_seconds(times, {true, 0, 2, false}, Receives::gradient), 102);
}

// Tied models have stages with both or neither: the sum is right, though it cannot be divided.
TEST(LayerTimes, EmbeddingAndHeadThatAreAlwaysTogether) {
  std::vector<StageTiming> stages;
  for (const int blocks : {1, 4}) stages.push_back({{true, 0, blocks, true}, 3e-3 + 2e-3 * blocks});
  const LayerTimes times = solve_layers(stages, Receives::activation);
  EXPECT_NEAR(times.block, 2e-3, 1e-12);
  EXPECT_NEAR(times.embedding, 3e-3, 1e-12);
  EXPECT_EQ(times.head, 0);
  EXPECT_EQ(times.received, 0);
}

TEST(LayerTimes, NoTimeIsNegative) {
  auto stages = timings({1e-3, 5e-3, 1e-3, 0}, Receives::nothing);
  // As if a stage with an embedding were faster than one without.
  for (StageTiming& stage : stages) stage.seconds -= stage.layers.embedding ? 2e-3 : 0;
  const LayerTimes times = solve_layers(stages, Receives::nothing);
  EXPECT_EQ(times.embedding, 0);
  EXPECT_GT(times.block, 4e-3);
  EXPECT_GE(times.head, 0);
}

// Three timings of one unknown that contradict each other: the heavy one decides.
TEST(LayerTimes, WeightDecidesBetweenContradictions) {
  const StageLayers block{true, 0, 1, false};
  const StageLayers two{true, 0, 2, false};
  const LayerTimes times = solve_layers({{block, 1e-3, 1e-3}, {two, 4e-3, 1.0}}, Receives::activation);
  EXPECT_NEAR(stage_seconds(times, two, Receives::activation), 4e-3, 1e-6);
  EXPECT_EQ(times.embedding, 0);
}

TEST(LayerTimes, NothingTimedIsAnError) {
  EXPECT_THROW(solve_layers({}, Receives::nothing), RunError);
  EXPECT_THROW(solve_layers({{{true, 0, 1, false}, 0.0}}, Receives::nothing), RunError);
  EXPECT_THROW(solve_layers({{{true, 0, 1, false}, std::numeric_limits<double>::quiet_NaN()}}, Receives::nothing), RunError);
}

}  // namespace
}  // namespace minipipe::core
