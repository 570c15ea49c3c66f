#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "schedules/error.hpp"
#include "schedules/exec/run_together.hpp"
#include "schedules/plan/complete.hpp"
#include "schedules/plan/csv.hpp"
#include "schedules/tune/asynchronous.hpp"
#include "schedules/tune/tuner.hpp"
#include "unit_tests/schedules/toy_pipeline.hpp"
#include "unit_tests/schedules/tune/profiles.hpp"

namespace minipipe::schedules {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TuneRequest request_for(CostProfile profile, int devices, int microbatches, std::int64_t evaluations) {
  TuneRequest request;
  request.profile = std::move(profile);
  request.devices = devices;
  request.microbatches = microbatches;
  request.evaluations = evaluations;
  return request;
}

GraphResult simulated(const TuneRequest& request, const TunedPlan& plan) {
  return simulate_graph(make_graph(CostSums(request.profile), plan.partition, plan.placement, request.microbatches),
                        plan.order);
}

std::string text(const Plan& plan) {
  std::ostringstream stream;
  write_csv(stream, plan);
  return stream.str();
}

void expect_sound(const TuneRequest& request, const TunedPlan& plan) {
  EXPECT_EQ(simulated(request, plan).makespan, plan.makespan);
  EXPECT_EQ(std::accumulate(plan.partition.begin(), plan.partition.end(), 0), request.profile.size());
  ScheduleOptions options;
  options.stages = static_cast<int>(plan.partition.size());
  options.window = request.microbatches;
  EXPECT_NO_THROW(validate_plan(complete_plan(plan.order, options), options, plan.name)) << plan.name;
}

TEST(Tuner, PublishedProfileBelowThePublishedPlan) {
  const auto request = request_for(nemotron_nano(), 4, 8, 60000);
  const auto result = tune(request);
  EXPECT_EQ(result.lower_bound, 85194);
  EXPECT_LE(result.best.makespan, 89000);
  EXPECT_GE(result.best.makespan, result.lower_bound);
  expect_sound(request, result.best);
  ASSERT_EQ(result.baselines.size(), 6u);
  for (const TunedPlan& plan : result.baselines) {
    expect_sound(request, plan);
    EXPECT_LE(result.best.makespan, plan.makespan) << plan.name;
  }
  EXPECT_EQ(result.baselines.front().makespan, 133121);
}

TEST(Tuner, SameSeedAndEvaluationsGiveTheSamePlan) {
  auto request = request_for(nemotron_nano(), 4, 8, 30000);
  const auto a = tune(request);
  const auto b = tune(request);
  EXPECT_EQ(a.best.partition, b.best.partition);
  EXPECT_EQ(a.best.placement, b.best.placement);
  EXPECT_EQ(text(a.best.order), text(b.best.order));
  request.seed = 2;
  EXPECT_NE(text(tune(request).best.order), text(a.best.order));
}

TEST(Tuner, KeepsTheMemoryCap) {
  auto request = request_for(nemotron_nano(), 4, 8, 40000);
  request.cap = 56;
  const auto result = tune(request);
  const auto peaks = simulated(request, result.best).peak_units;
  EXPECT_LE(*std::max_element(peaks.begin(), peaks.end()), 56);
  EXPECT_LT(result.best.makespan, 100000);
  expect_sound(request, result.best);
  for (const TunedPlan& plan : result.baselines) {
    const auto peak = simulated(request, plan).peak_units;
    EXPECT_LE(*std::max_element(peak.begin(), peak.end()), 56) << plan.name;
  }
}

// The least memory any plan needs still gives a plan.
TEST(Tuner, TheSmallestPossibleCapGivesAPlan) {
  auto request = request_for(nemotron_nano(), 4, 3, 500);
  request.cap = 14;
  const auto result = tune(request);
  EXPECT_THAT(simulated(request, result.best).peak_units, ElementsAre(14, 14, 14, 14));
}

TEST(Tuner, AnImpossibleCapSaysByHowMuchAndWhichStage) {
  auto request = request_for(nemotron_nano(), 4, 8, 100);
  request.cap = 10;
  try {
    tune(request);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("needs 14 units for one microbatch, 4 more than the cap; its largest stage is"));
  }
}

TEST(Tuner, BadRequestsAreRefused) {
  EXPECT_THROW(tune(request_for(equal_layers(3, 1, 1, 1), 4, 2, 10)), InputError);
  EXPECT_THROW(tune(request_for(equal_layers(4, 1, 1, 1), 0, 2, 10)), InputError);
  EXPECT_THROW(tune(request_for(equal_layers(4, 1, 1, 1), 2, 0, 10)), InputError);
  EXPECT_THROW(tune(request_for(equal_layers(4, -1, 1, 1), 2, 2, 10)), InputError);
  EXPECT_THROW(tune(request_for(equal_layers(4, 1, 1, 1), 2, 2, 0)), InputError);
}

// Equal devices have no spread of bubbles whatever the order is. A search that only follows the diagnosis tunes the schedule
// for ever there, although moving a layer helps.
TEST(Tuner, EqualLayersOnEqualDevicesDoNotStall) {
  BubbleDiagnosis even{144, 144, 0};
  EXPECT_THAT(phase_order(even, 3), ElementsAre(Phase::schedule, Phase::placement, Phase::partition));
  even.boundary = 200;
  EXPECT_THAT(phase_order(even, 3), ElementsAre(Phase::placement, Phase::schedule, Phase::partition));
  even.spread = 4;
  EXPECT_THAT(phase_order(even, 3), ElementsAre(Phase::partition, Phase::placement, Phase::schedule));

  // 64 layers on 4 devices, 8 microbatches: 8 stages of 8 layers take 456, one boundary move 447, the lower bound is 384.
  const auto request = request_for(equal_layers(64, 1, 1, 1), 4, 8, 60000);
  const auto result = tune(request);
  EXPECT_EQ(result.lower_bound, 384);
  EXPECT_LT(result.best.makespan, 400);
  expect_sound(request, result.best);
}

TEST(Tuner, StopsWhenAskedWithTheBestSoFar) {
  auto request = request_for(nemotron_nano(), 4, 8, 0);
  int asked = 0;
  request.stop = [&] { return ++asked > 3; };
  const auto result = tune(request);
  expect_sound(request, result.best);
  EXPECT_LT(result.evaluations, 1000);
  EXPECT_LE(result.best.makespan, 133121);
}

TEST(Tuner, StopEndsTheBaselinesToo) {
  auto request = request_for(nemotron_nano(), 4, 8, 0);
  request.stop = [] { return true; };
  ASSERT_EQ(baselines(request).size(), 1u);
  EXPECT_EQ(baselines(request).front().name, "1f1b");
  const auto result = tune(request);
  EXPECT_EQ(result.best.makespan, 133121);
  EXPECT_EQ(result.evaluations, 0);
  expect_sound(request, result.best);
}

// The searches among the baselines have budgets of their own. Where evaluations take long, the request's smaller one limits
// them, and `stop` is asked at every evaluation, else at every 16th.
TEST(Tuner, BaselinesOfALargeCaseKeepToTheBudget) {
  const auto asked = [](int layers, int evaluations) {
    auto request = request_for(equal_layers(layers, 1, 1, 1), 2, 128, evaluations);
    int count = 0;
    request.stop = [&] { return ++count < 0; };
    EXPECT_EQ(baselines(request).size(), 6u);
    return count;
  };
  EXPECT_GT(asked(64, 10), 200);
  EXPECT_LT(asked(1024, 2), 50);
  EXPECT_GE(asked(1024, 42), asked(1024, 2) + 40);
}

TEST(Tuner, FewMicrobatchesAndOneDevice) {
  for (const int devices : {1, 3}) {
    for (const int microbatches : {1, 2}) {
      const auto request = request_for(equal_layers(7, 2, 3, 1), devices, microbatches, 3000);
      expect_sound(request, tune(request).best);
    }
  }
}

// Under a tuned plan the toy model trains to the very bits of 1f1b.
TEST(Tuner, TunedPlansTrainLike1F1B) {
  const auto request = request_for(nemotron_nano(), 4, 8, 20000);
  const auto plan = tune(request).best;
  ScheduleOptions options;
  options.name = "gpipe";
  options.stages = static_cast<int>(plan.partition.size());
  options.window = 8;
  ToyPipeline tuned(options, complete_plan(plan.order, options), std::vector<std::int64_t>(plan.partition.size(), 8), 8);
  tuned.begin_segment(8);
  run_together(tuned.all());
  options.name = "1f1b";
  ToyPipeline reference(options, 8);
  reference.begin_segment(8);
  run_together(reference.all());
  EXPECT_EQ(tuned.weights(), reference.weights());
  EXPECT_EQ(tuned.stages.back()->losses(), reference.stages.back()->losses());
  EXPECT_EQ(tuned.stages.back()->losses().size(), 8u);
}

TEST(Partition, EveryLayerOnceAndNoEmptyStage) {
  EXPECT_THAT(uniform_partition(5, 4), ElementsAre(2, 1, 1, 1));
  EXPECT_THAT(uniform_partition(38, 8), ElementsAre(5, 5, 5, 5, 5, 5, 4, 4));
  auto profile = equal_layers(5, 1, 1, 1);
  const auto partition = min_max_partition(profile, 4);
  EXPECT_EQ(std::accumulate(partition.begin(), partition.end(), 0), 5);
  EXPECT_EQ(*std::min_element(partition.begin(), partition.end()), 1);
  profile.head = {9, 9, 9, 0};
  EXPECT_EQ(min_max_partition(profile, 3).back(), 0) << "a heavy head stands alone";
  EXPECT_THROW(min_max_partition(profile, 7), InputError);
  EXPECT_EQ(min_max_partition(profile, 6).size(), 6u);
}

TEST(Bound, OfOneLayerThatOutweighsTheRest) {
  auto profile = equal_layers(4, 1, 1, 1);
  profile.head = {10, 10, 10, 0};
  // Ten microbatches of the head on one device, behind the first forward through four layers.
  EXPECT_EQ(lower_bound(profile, 4, 10), 4 + 300);
  EXPECT_EQ(lower_bound(profile, 1, 10), 420);
  EXPECT_EQ(lower_bound(profile, 4, 1), 34);
}

TEST(Bound, OfLayersThatCannotBeSharedEvenly) {
  // Five layers of 3 on four devices: one device has two of them.
  EXPECT_EQ(lower_bound(equal_layers(5, 1, 1, 1), 4, 10), 60);
  // 13 on four: one has four.
  EXPECT_EQ(lower_bound(equal_layers(13, 1, 1, 1), 4, 100), 1200);
}

TEST(Bound, OfOneMicrobatchOverLinks) {
  auto profile = equal_layers(4, 1, 2, 5);
  // Down and up through four layers, and the first layer's weight gradient.
  EXPECT_EQ(lower_bound(profile, 4, 1), 4 + 8 + 5);
  profile.link = 100;
  EXPECT_EQ(lower_bound(profile, 4, 1), 4 + 8 + 5 + 600);
  const auto request = request_for(profile, 4, 1, 100);
  EXPECT_EQ(tune(request).best.makespan, 617);
}

TEST(Bound, OfLayersThatCostNothing) {
  // A workload takes a tick.
  const auto request = request_for(equal_layers(4, 0, 0, 0), 2, 2, 100);
  const auto result = tune(request);
  EXPECT_EQ(result.lower_bound, 6);
  EXPECT_GE(result.best.makespan, result.lower_bound);
}

TEST(AsynchronousTuner, BalancesUnevenLayersAndKeepsTheGap) {
  auto profile = equal_layers(9, 2, 2, 2);
  profile.head = {6, 6, 6, 0};
  AsynchronousRequest request{.profile = profile, .devices = 3};
  const auto result = tune_asynchronous(request);
  EXPECT_THAT(result.best.partition, ElementsAre(4, 4, 1));
  EXPECT_EQ(result.best.time_per_microbatch, 24);
  EXPECT_EQ(result.lower_bound, 24);
  EXPECT_EQ(result.best.gap_max, 1);
  EXPECT_EQ(result.best.window, 2) << "the smallest window with a gap of 1: ceil((N-1)/a) = 1";
  request.most_gap = 0;
  EXPECT_THROW(tune_asynchronous(request), InputError);
}

// Where the longest stage sets the pace, no other partition is simulated; else the budget or the time ends it, but not before
// there is a window that keeps the gap.
TEST(AsynchronousTuner, EndsWhereNothingIsToBeFoundOrTimeIsUp) {
  AsynchronousRequest request{.profile = equal_layers(16, 1, 1, 1), .devices = 8};
  int asked = 0;
  request.stop = [&] { return ++asked > 100000; };
  const auto even = tune_asynchronous(request);
  EXPECT_LE(asked, 10) << "once after each window";
  EXPECT_EQ(even.best.time_per_microbatch, even.lower_bound);
  request.profile = nemotron_nano();
  request.profile.link = 10000;  // nothing hides it, so that no stage sets the pace
  asked = 0;
  const auto whole = tune_asynchronous(request);
  EXPECT_GT(asked, 50);
  request.stop = [] { return true; };
  const auto stopped = tune_asynchronous(request);
  EXPECT_EQ(stopped.best.gap_max, 1);
  EXPECT_EQ(stopped.best.partition, min_max_partition(request.profile, 8));
  EXPECT_LT(stopped.windows.size(), whole.windows.size());
  request.stop = nullptr;
  request.evaluations = 3;
  EXPECT_EQ(tune_asynchronous(request).best.partition, stopped.best.partition);
}

TEST(AsynchronousTuner, ACostlyUpdateFavoursLargerWindows) {
  AsynchronousRequest request{.profile = equal_layers(6, 1, 1, 1), .devices = 3};
  request.update = 12;
  request.most_gap = 2;
  EXPECT_GT(tune_asynchronous(request).best.window, 2);
}

}  // namespace
}  // namespace minipipe::schedules
