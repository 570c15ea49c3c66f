#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedules/check/checker.hpp"
#include "schedules/error.hpp"
#include "schedules/generate/generate.hpp"
#include "schedules/graph/list_scheduler.hpp"
#include "schedules/plan/complete.hpp"
#include "schedules/simulate/simulator.hpp"
#include "unit_tests/schedules/tune/profiles.hpp"

namespace minipipe::schedules {
namespace {

using testing::ElementsAre;

Plan one_update(const std::string& name, int stages, int microbatches) {
  ScheduleOptions options;
  options.name = name;
  options.stages = stages;
  options.window = microbatches;
  return generate_plan(options, placement_for(options), 0, 1);
}

const std::vector<int> kPublished = {2, 2, 2, 2, 2, 2, 2, 3, 2, 3, 2, 3, 2, 3, 3, 2, 3, 3, 2, 2, 2, 3, 3, 1};
const Placement kPublishedPlacement =
    placement_from({{0, 4, 8, 12, 16, 19, 20}, {1, 5, 9, 13, 17, 21}, {2, 6, 10, 14, 18, 22}, {3, 7, 11, 15, 23}}, 24);

TEST(UpdateGraph, OneForwardOneBackwardOfThePublishedProfileToTheTick) {
  const auto graph = make_graph(CostSums(nemotron_nano()), {14, 14, 14, 14}, one_stage_per_rank(4), 8);
  const auto result = simulate_graph(graph, one_update("1f1b", 4, 8));
  EXPECT_EQ(result.makespan, 133121);
  EXPECT_THAT(result.compute, ElementsAre(85000, 76160, 76160, 103456));
  EXPECT_THAT(result.peak_units, ElementsAre(56, 42, 28, 14));
}

TEST(ListScheduler, ThePublishedPlanToTheTick) {
  const auto graph = make_graph(CostSums(nemotron_nano()), kPublished, kPublishedPlacement, 8);
  Plan order;
  EXPECT_EQ(ListScheduler().run(graph, {}, &order), 89870);
  const auto result = simulate_graph(graph, order);
  EXPECT_EQ(result.makespan, 89870);
  EXPECT_THAT(result.compute, ElementsAre(86392, 84880, 84728, 84776));
  EXPECT_THAT(result.peak_units, ElementsAre(80, 89, 82, 75));
}

TEST(UpdateGraph, AgreesWithTheSimulatorOfThePolicies) {
  for (const std::string name : {"gpipe", "1f1b", "zb-h1", "zb-h2"}) {
    for (const double link : {0.0, 3.0}) {
      Costs costs{{3, 5, 2, 4}, {4, 6, 3, 5}, {2, 1, 4, 3}, {0, 0, 0, 0}, link};
      const Plan plan = one_update(name, 4, 6);
      UpdateGraph graph{one_stage_per_rank(4), 6, {}, link};
      for (std::size_t s = 0; s < 4; ++s) {
        graph.stages.push_back({costs.forward[s], costs.backward_input[s], costs.backward_weight[s]});
      }
      EXPECT_EQ(simulate_graph(graph, plan).makespan, simulate(plan, costs).makespan) << name << " link " << link;
    }
  }
}

TEST(UpdateGraph, RealTimesAndTicksAgreeUpToRounding) {
  CostProfile ticks = nemotron_nano();
  CostProfile real = ticks;
  real.clock = Clock::real;
  for (auto* costs : {&real.embedding, &real.head})
    *costs = {costs->forward / 100, costs->backward_input / 100, costs->backward_weight / 100, 0};
  for (auto& layer : real.layers) layer = {layer.forward / 100, layer.backward_input / 100, layer.backward_weight / 100};
  const std::vector<int> partition{14, 14, 14, 14};
  const auto graph = make_graph(CostSums(real), partition, one_stage_per_rank(4), 8);
  EXPECT_NEAR(simulate_graph(graph, one_update("1f1b", 4, 8)).makespan, 1331.21, 1e-6);
}

TEST(UpdateGraph, MemoryIsTakenAtTheForwardsStartAndGivenBackAtTheWeightGradientsEnd) {
  UpdateGraph graph{{1, {0}}, 2, {{2, 3, 4, 5}}, 0};
  using K = Kind;
  const Plan order{
      {{{K::forward, 0, 0}, {K::backward_input, 0, 0}, {K::forward, 0, 1}, {K::backward_weight, 0, 0}, {K::backward, 0, 1}}}};
  const auto result = simulate_graph(graph, order);
  ASSERT_EQ(result.memory[0].size(), 4u);
  const double times[4] = {0, 5, 11, 18}, units[4] = {5, 10, 5, 0};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(result.memory[0][i].time, times[i]);
    EXPECT_EQ(result.memory[0][i].units, units[i]);
  }
}

TEST(UpdateGraph, ListsThatWaitForEachOtherAreAnError) {
  UpdateGraph graph{one_stage_per_rank(2), 1, {{1, 1, 1}, {1, 1, 1}}, 0};
  Plan order{{{{Kind::forward, 0, 0}, {Kind::backward, 0, 0}}, {{Kind::backward, 1, 0}, {Kind::forward, 1, 0}}}};
  EXPECT_THROW(simulate_graph(graph, order), RunError);
  EXPECT_EQ(OrderEvaluator().makespan(graph, order), OrderEvaluator::kNever);
}

// Random partitions, placements, costs, rules and caps: every order is legal and keeps the cap.
TEST(ListScheduler, OrdersAreLegalAndKeepTheCap) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int capped = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int devices = 1 + below(4), stages = devices + below(8), m = 1 + below(6);
    UpdateGraph graph;
    graph.placement.ranks = devices;
    graph.microbatches = m;
    graph.link = below(3);
    for (int s = 0; s < stages; ++s) {
      graph.placement.rank_of_stage.push_back(s < devices ? s : below(devices));
      graph.stages.push_back({1.0 + below(9), 1.0 + below(9), 1.0 * below(9), 1.0 + below(4)});
    }
    std::shuffle(graph.placement.rank_of_stage.begin(), graph.placement.rank_of_stage.end(), random);
    ListRules rules{below(2) == 0, below(2) == 0, below(2) == 0, below(3) == 0, 0.25 * below(4)};
    const auto least = least_units(graph);
    if (below(2) == 0) rules.cap = *std::max_element(least.begin(), least.end()) + below(8);
    Plan order;
    const double makespan = ListScheduler().run(graph, rules, &order);
    const auto result = simulate_graph(graph, order);
    EXPECT_LE(result.makespan, makespan);
    if (rules.hold == 0) {
      EXPECT_EQ(result.makespan, makespan) << trial;
    }
    EXPECT_LE(*std::max_element(result.peak_units.begin(), result.peak_units.end()), rules.cap) << trial;
    capped += rules.cap < 1e9 ? 1 : 0;
    ScheduleOptions options;
    options.name = "gpipe";
    options.stages = stages;
    options.window = m;
    EXPECT_NO_THROW(validate_plan(complete_plan(order, options), options, "list")) << trial;
  }
  EXPECT_GT(capped, 50);
}

TEST(ListScheduler, ACapThatFitsNothingNamesDeviceStageAndWhatIsMissing) {
  UpdateGraph graph{placement_from({{0, 2}, {1}}, 3), 2, {{1, 1, 1, 3}, {1, 1, 1, 2}, {1, 1, 1, 4}}, 0};
  ListRules rules;
  rules.cap = 5;
  try {
    ListScheduler().run(graph, rules);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("device 0 needs 7 units for one microbatch, 2 more than the cap"));
    EXPECT_THAT(error.what(), testing::HasSubstr("largest stage is 2 with 4"));
  }
  rules.cap = 7;
  EXPECT_GT(ListScheduler().run(graph, rules), 0);
}

}  // namespace
}  // namespace minipipe::schedules
