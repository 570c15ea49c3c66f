#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/error.hpp"
#include "schedules/generate/generate.hpp"
#include "schedules/tune/tuner.hpp"
#include "unit_tests/schedules/tune/profiles.hpp"

namespace minipipe::schedules {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// 64 layers of 1 and 2 on four devices in eight stages, eight microbatches. From the report of a re-implementation of arXiv
// 2509.23722v3: interleaved takes 456, one move of a layer 447; another start was improved from 840 to 728.
constexpr int kDevices = 4;
constexpr int kStages = 8;
constexpr int kMicrobatches = 8;

TuneRequest trap(std::int64_t evaluations) {
  TuneRequest request;
  request.profile = equal_layers(64, 1, 2, 0);
  // The re-implementation has no weight gradients; ticks would give each stage's one.
  request.profile.clock = Clock::real;
  request.devices = kDevices;
  request.microbatches = kMicrobatches;
  request.evaluations = evaluations;
  return request;
}

// Groups of `group` microbatches one after the other: all forwards, then all backwards, whole ones.
TunedPlan breadth_first(int group) {
  TunedPlan plan{"", std::vector<int>(kStages, 8), looped(kDevices, kStages / kDevices), {}, 0};
  plan.order.ranks.resize(kDevices);
  for (int begin = 0; begin < kMicrobatches; begin += group) {
    const auto row = [&](Kind kind, int stage) {
      ActionList& list = plan.order.ranks[static_cast<std::size_t>(plan.placement.rank_of(stage))];
      for (int m = begin; m < begin + group; ++m) list.push_back({kind, stage, m});
    };
    for (int s = 0; s < kStages; ++s) row(Kind::forward, s);
    for (int s = kStages; s-- > 0;) row(Kind::backward, s);
  }
  return plan;
}

TunedPlan interleaved() {
  ScheduleOptions options;
  options.name = "interleaved";
  options.stages = kStages;
  options.chunks = kStages / kDevices;
  options.window = kMicrobatches;
  const Placement placement = looped(kDevices, options.chunks);
  return {"", std::vector<int>(kStages, 8), placement, generate_plan(options, placement, 0, 1), 0};
}

double makespan(const TuneRequest& request, const TunedPlan& plan) {
  return simulate_graph(make_graph(CostSums(request.profile), plan.partition, plan.placement, kMicrobatches), plan.order)
      .makespan;
}

TEST(Trap, EqualLayersOnEqualDevicesAreTheTrapOfTheDiagnosis) {
  const TuneRequest request = trap(1);
  const TunedPlan start = interleaved();
  const auto graph = make_graph(CostSums(request.profile), start.partition, start.placement, kMicrobatches);
  const GraphResult result = simulate_graph(graph, start.order);
  EXPECT_EQ(result.makespan, 456);
  const BubbleDiagnosis diagnosis = diagnose(result);
  EXPECT_EQ(diagnosis.boundary, 144);
  EXPECT_EQ(diagnosis.residual, 144);
  EXPECT_EQ(diagnosis.spread, 0);
  // The diagnosis asks for another order, though moving a layer is what helps; the other phases must follow.
  EXPECT_THAT(phase_order(diagnosis, 3), ElementsAre(Phase::schedule, Phase::placement, Phase::partition));
  TunedPlan moved = start;
  moved.partition = {8, 8, 8, 7, 9, 8, 8, 8};
  EXPECT_EQ(makespan(request, moved), 447);
}

TEST(Trap, TheSearchImprovesOnTheTrap) {
  TuneRequest request = trap(30000);
  request.start = interleaved();
  const TuneResult result = tune(request);
  EXPECT_LE(result.best.makespan, 447);
  EXPECT_EQ(makespan(request, result.best), result.best.makespan);
  EXPECT_TRUE(result.baselines.empty()) << "the search began from the plan that was given";
}

TEST(Trap, TheSearchLeavesASlowStart) {
  TuneRequest request = trap(30000);
  request.start = breadth_first(2);
  EXPECT_EQ(makespan(request, *request.start), 864);
  EXPECT_LE(tune(request).best.makespan, 728);
}

// Whatever the diagnosis says, every phase gets its turn.
TEST(Trap, NoPhaseIsLeftOut) {
  for (const double boundary : {0.0, 1.0, 2.0}) {
    for (const double residual : {0.0, 1.0, 2.0}) {
      for (const double spread : {0.0, 1.0, 2.0}) {
        EXPECT_THAT(phase_order({boundary, residual, spread}, 1),
                    testing::UnorderedElementsAre(Phase::partition, Phase::placement, Phase::schedule));
      }
    }
  }
}

// A start where nothing at all is to be won ends by its budget, not never.
TEST(Trap, ASearchWithoutAnythingToFindEnds) {
  TuneRequest request;
  request.profile = equal_layers(1, 5, 5, 5);
  request.devices = 1;
  request.microbatches = 2;
  request.evaluations = 100;
  EXPECT_EQ(tune(request).best.makespan, 30);
  // The bound is out of reach: the device with two of the four layers has to wait for the two behind or before them.
  request.profile = equal_layers(4, 5, 5, 5);
  request.devices = 3;
  request.microbatches = 2;
  const TuneResult result = tune(request);
  EXPECT_GT(result.best.makespan, result.lower_bound);
  EXPECT_GE(result.evaluations, 100);
  EXPECT_LT(result.evaluations, 200);
}

TEST(Trap, AStartOfSomethingElseIsRefused) {
  const auto refused = [](TuneRequest request, TunedPlan start, const std::string& reason) {
    request.start = std::move(start);
    try {
      tune(request);
      ADD_FAILURE() << "accepted, wanted: " << reason;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  };
  const TunedPlan good = interleaved();
  TunedPlan plan = good;
  plan.partition[0] = 9;
  refused(trap(10), plan, "is not one of 64 layers");
  TuneRequest request = trap(10);
  request.devices = 5;
  refused(request, good, "is not one of 5 devices");
  request = trap(10);
  request.microbatches = 9;
  refused(request, good, "is not one of 9 microbatches");
  request.microbatches = 7;
  refused(request, good, "of another stage or microbatch");
  request = trap(10);
  request.cap = 60;
  refused(request, good, "holds more than the memory cap");
}

}  // namespace
}  // namespace minipipe::schedules
