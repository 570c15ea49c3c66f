#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/error.hpp"
#include "schedules/tune/tuner.hpp"
#include "unit_tests/schedules/tune/profiles.hpp"

namespace minipipe::schedules {
namespace {

using testing::HasSubstr;

TuneRequest small_case(std::vector<LayerCosts> layers, int devices, int microbatches) {
  TuneRequest request;
  request.profile.layers = std::move(layers);
  request.profile.clock = Clock::ticks;
  request.devices = devices;
  request.microbatches = microbatches;
  request.evaluations = 100000;
  return request;
}

// The optimum of these was found by going through all partitions, placements and orders.
TEST(Optimum, OfTwoDevicesAndTwoMicrobatches) {
  const LayerCosts a{84, 71, 47}, b{91, 18, 48};
  EXPECT_EQ(tune(small_case({a, b, b, b}, 2, 2)).best.makespan, 743);
  const LayerCosts c{18, 140, 29}, d{19, 25, 13};
  EXPECT_EQ(tune(small_case({c, d, c, d}, 2, 2)).best.makespan, 602);
}

// It takes five stages for three layers: embedding and head alone.
TEST(Optimum, WithEmbeddingAndHeadAlone) {
  const LayerCosts layer{374, 194, 199};
  TuneRequest request = small_case({layer, layer, layer}, 3, 3);
  request.profile.embedding = {12, 16, 0, 0};
  request.profile.head = {126, 65, 60, 0};
  const TunedPlan best = tune(request).best;
  EXPECT_EQ(best.makespan, 3326);
  EXPECT_EQ(best.partition, (std::vector<int>{0, 1, 1, 1, 0}));
}

// Neither the best plan nor a baseline has more stages than asked for.
TEST(MostStages, HoldForBaselinesToo) {
  for (const int most : {2, 3, 5}) {
    TuneRequest request;
    request.profile = equal_layers(16, 100, 100, 100);
    request.devices = 2;
    request.microbatches = 4;
    request.evaluations = 500;
    request.most_stages = most;
    const TuneResult result = tune(request);
    EXPECT_LE(result.best.partition.size(), static_cast<std::size_t>(most));
    for (const TunedPlan& plan : result.baselines) {
      EXPECT_LE(plan.partition.size(), static_cast<std::size_t>(most)) << plan.name;
    }
  }
}

TEST(MostStages, FewerThanDevicesAreRefused) {
  TuneRequest request;
  request.profile = equal_layers(8, 1, 1, 1);
  request.devices = 4;
  request.microbatches = 4;
  request.evaluations = 100;
  request.most_stages = 2;
  try {
    tune(request);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("at most 2 stages are fewer than the 4 devices"));
  }
}

}  // namespace
}  // namespace minipipe::schedules
