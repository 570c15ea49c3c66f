#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/error.hpp"
#include "schedules/tune/tuner.hpp"
#include "unit_tests/schedules/tune/profiles.hpp"

namespace minipipe::schedules {
namespace {

using testing::HasSubstr;

// Layers that hold much take little time, so that the partition with the shortest longest stage does not fit under the cap.
TuneRequest uneven_memory() {
  TuneRequest request;
  for (int i = 0; i < 4; ++i) request.profile.layers.push_back({1, 1, 1, 8});
  for (int i = 0; i < 4; ++i) request.profile.layers.push_back({9, 9, 9, 1});
  request.profile.clock = Clock::ticks;
  request.devices = 2;
  request.microbatches = 4;
  request.evaluations = 2000;
  return request;
}

std::vector<double> peaks(const TuneRequest& request, const TunedPlan& plan) {
  return peak_units(make_graph(CostSums(request.profile), plan.partition, plan.placement, request.microbatches), plan.order);
}

// 20 is the smallest cap that stages in sequence keep, 18 the smallest of all. No baseline fits under them, a plan there is.
TEST(MemoryCap, APlanIsFoundWhereNoBaselineFits) {
  for (const double cap : {20.0, 18.0}) {
    TuneRequest request = uneven_memory();
    request.cap = cap;
    for (const std::int64_t evaluations : {1, 2000}) {
      request.evaluations = evaluations;
      const TuneResult result = tune(request);
      EXPECT_TRUE(std::none_of(result.baselines.begin(), result.baselines.end(),
                               [](const TunedPlan& plan) { return plan.name == "1f1b" || plan.name == "partition-only"; }));
      const auto held = peaks(request, result.best);
      EXPECT_LE(*std::max_element(held.begin(), held.end()), cap);
      EXPECT_LT(result.best.makespan, OrderEvaluator::kNever);
    }
  }
}

TEST(MemoryCap, EveryCapFromTheSmallestOnGivesAPlanAndMoreMemoryIsNotSlower) {
  TuneRequest request = uneven_memory();
  double before = OrderEvaluator::kNever;
  for (double cap = 18; cap <= 78; cap += 12) {
    request.cap = cap;
    const TuneResult result = tune(request);
    const auto held = peaks(request, result.best);
    EXPECT_LE(*std::max_element(held.begin(), held.end()), cap);
    // Within what a short search may miss.
    EXPECT_LE(result.best.makespan, 1.05 * before) << "cap " << cap;
    before = result.best.makespan;
  }
}

TEST(MemoryCap, ACapUnderWhichNothingFitsSaysWhatIsMissingAndWhere) {
  TuneRequest request = uneven_memory();
  request.cap = 17;
  try {
    tune(request);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("memory cap 17: device"));
    EXPECT_THAT(error.what(), HasSubstr("needs 18 units for one microbatch, 1 more than the cap"));
    EXPECT_THAT(error.what(), HasSubstr("its largest stage is"));
  }
  request.cap = 0;
  EXPECT_THROW(tune(request), InputError);
  request.cap = -3;
  EXPECT_THROW(tune(request), InputError);
}

// Going through the layers by size gives one device 7; 3 + 3 and 2 + 2 + 2 are 6 each.
TEST(MemoryCap, LayersAreSpreadAsEvenlyAsCanBe) {
  TuneRequest request;
  for (const double units : {3, 2, 3, 2, 2}) request.profile.layers.push_back({1, 1, 1, units});
  request.profile.clock = Clock::ticks;
  request.devices = 2;
  request.microbatches = 2;
  request.evaluations = 200;
  request.cap = 6;
  const auto held = peaks(request, tune(request).best);
  EXPECT_LE(*std::max_element(held.begin(), held.end()), 6);
  request.cap = 5.5;
  EXPECT_THAT([&] { tune(request); }, testing::ThrowsMessage<InputError>(HasSubstr("needs 6 units for one microbatch")));
  // Three stages are too few for that.
  request.cap = 6;
  request.most_stages = 3;
  EXPECT_THAT([&] { tune(request); }, testing::ThrowsMessage<InputError>(HasSubstr("needs 7 units for one microbatch")));
  request.cap = 7;
  EXPECT_LE(tune(request).best.partition.size(), 3u);
}

TEST(MemoryCap, ManyLayersAreSpreadInTime) {
  TuneRequest request;
  for (int i = 0; i < 400; ++i) request.profile.layers.push_back({1, 1, 1, 1.0 + 0.37 * (i * 7919 % 101)});
  request.profile.clock = Clock::ticks;
  request.devices = 64;
  request.microbatches = 1;
  request.evaluations = 1;
  request.cap = 1;
  EXPECT_THROW(tune(request), InputError);
}

// A head that holds memory can stand alone if it takes time, and not else.
TEST(MemoryCap, AHeadThatHoldsMuchStandsAlone) {
  TuneRequest request;
  request.profile = equal_layers(6, 1, 1, 1);
  request.profile.head = {1, 1, 1, 6};
  request.devices = 2;
  request.microbatches = 2;
  request.evaluations = 200;
  request.cap = 6;
  EXPECT_EQ(tune(request).best.partition.back(), 0);
  request.profile.head = {0, 0, 0, 6};
  EXPECT_THAT([&] { tune(request); }, testing::ThrowsMessage<InputError>(HasSubstr("needs 7 units for one microbatch")));
  request.cap = 7;
  EXPECT_GE(tune(request).best.partition.back(), 1);
}

TEST(Profile, BadCostsAreNamed) {
  const auto refused = [](CostProfile profile, const std::string& reason) {
    try {
      validate(profile);
      ADD_FAILURE() << "accepted, wanted: " << reason;
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  };
  CostProfile profile = equal_layers(4, 1, 1, 1);
  profile.layers[2].backward_weight = -0.5;
  refused(profile, "layer 2 has a cost of -0.5");
  profile = equal_layers(4, 1, 1, 1);
  profile.layers[3].units = -1;
  refused(profile, "layer 3");
  profile = equal_layers(4, 1, 1, 1);
  profile.head.forward = std::numeric_limits<double>::quiet_NaN();
  refused(profile, "the head");
  profile = equal_layers(4, 1, 1, 1);
  profile.link = -1;
  refused(profile, "the link's time");
  refused(CostProfile(), "no layers");
}

}  // namespace
}  // namespace minipipe::schedules
