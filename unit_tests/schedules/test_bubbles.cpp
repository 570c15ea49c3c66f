#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "schedules/simulate/bubbles.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::schedules {
namespace {

// A published 56-layer hybrid model (M, MLP "-", attention "*"), E embedding and L head, in ticks of 10 microseconds.
struct Ticks {
  double f, i, w;
};
const std::map<char, Ticks> kTicks{
    {'E', {76, 287, 0}}, {'M', {268, 430, 176}}, {'-', {185, 191, 169}}, {'*', {193, 245, 65}}, {'L', {1422, 1571, 6}}};
const std::string kLayers = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-";

TEST(Bubbles, SplitOfAPublishedRunToTheTick) {
  ASSERT_EQ(kLayers.size(), 56u);
  Costs costs = Costs::equal(4, 0, 0, 0);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    std::string layers = kLayers.substr(14 * stage, 14);
    if (stage == 0) layers += 'E';
    if (stage == 3) layers += 'L';
    for (const char layer : layers) {
      costs.forward[stage] += kTicks.at(layer).f;
      costs.backward_input[stage] += kTicks.at(layer).i;
      costs.backward_weight[stage] += kTicks.at(layer).w;
    }
  }
  ScheduleOptions schedule;
  schedule.stages = 4;
  schedule.window = 8;
  const SimulationResult result = simulate(schedule, costs, 8);
  EXPECT_EQ(result.busy, (std::vector<double>{85000, 76160, 76160, 103456}));
  EXPECT_EQ(result.makespan, 133121);
  const auto split = bubble_split(result.log);
  const double expected[4][3] = {{811, 36036, 11274}, {4819, 36508, 15634}, {7923, 28811, 20227}, {9538, 0, 20127}};
  for (std::size_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(split[stage].warm_up, expected[stage][0]) << stage;
    EXPECT_EQ(split[stage].residual, expected[stage][1]) << stage;
    EXPECT_EQ(split[stage].cool_down, expected[stage][2]) << stage;
  }
}

TEST(Bubbles, SumIsTheIdleTime) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "paci"}) {
    ScheduleOptions schedule;
    schedule.name = name;
    schedule.stages = 4;
    schedule.window = 3;
    const SimulationResult result = simulate(schedule, Costs::equal(4, 1, 1.5, 0.75, 0.25, 0.125), 9);
    const auto split = bubble_split(result.log);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_NEAR(split[rank].warm_up + split[rank].residual + split[rank].cool_down, result.makespan - result.busy[rank],
                  1e-9);
    }
  }
  EXPECT_TRUE(bubble_split({}).empty());
  EXPECT_EQ(bubble_split({{{}}}).front().residual, 0);
}

}  // namespace
}  // namespace minipipe::schedules
