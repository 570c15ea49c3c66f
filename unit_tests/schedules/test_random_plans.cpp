#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "schedules/check/checker.hpp"
#include "schedules/exec/run_together.hpp"
#include "unit_tests/schedules/random_plan.hpp"
#include "unit_tests/schedules/toy_pipeline.hpp"

namespace minipipe::schedules {
namespace {

ScheduleOptions rules_of(const RandomPlan& made) {
  ScheduleOptions options;
  options.name = "gpipe";
  options.stages = made.placement.stages();
  options.window = made.microbatches;
  return options;
}

CheckReport check_random(const Plan& plan, const RandomPlan& made) {
  CheckRange range{0, made.microbatches * made.updates, 0};
  range.placement = made.placement;
  range.activation_slots = made.slots();
  return check(plan, rules_of(made), range);
}

TEST(RandomPlans, NeverBlockInTheExecutorAndTrainAlike) {
  std::mt19937_64 random(20240611);
  std::size_t actions = 0;
  for (int trial = 0; trial < 10000; ++trial) {
    const RandomPlan made = random_plan(random);
    const auto slots = made.slots();
    ToyPipeline pipeline(rules_of(made), made.plan, slots, static_cast<int>(*std::max_element(slots.begin(), slots.end())));
    const std::int64_t m = made.microbatches;
    // A rank may begin the next update on one stage before another has ended this one: one segment for all.
    pipeline.begin_segment(m * made.updates);
    ASSERT_NO_THROW(run_together_shuffled(pipeline.all(), random())) << "trial " << trial;
    for (const ActionList& list : made.plan.ranks) actions += list.size();
    if (trial % 16 != 0) continue;
    const CheckReport report = check_random(made.plan, made);
    ASSERT_TRUE(report.ok()) << "trial " << trial << ": " << report.problems.front();
    const ToyResult expected =
        serial_toy(made.placement.stages(), m, m * made.updates, [m](int, std::int64_t k) { return k / m; });
    ASSERT_EQ(pipeline.weights(), expected.weights) << "trial " << trial;
  }
  EXPECT_GT(actions, 1000000u);
}

std::string place(std::size_t rank, std::size_t cell) {
  return "rank " + std::to_string(rank) + ", cell " + std::to_string(cell + 1) + " (";
}

TEST(RandomPlans, MistakesAreNamedAtTheirFirstCell) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < 3000; ++trial) {
    const RandomPlan made = random_plan(random);
    Plan plan = made.plan;
    const std::size_t rank = random() % plan.ranks.size();
    ActionList& list = plan.ranks[rank];
    const std::size_t cell = random() % list.size();
    const auto at = list.begin() + static_cast<std::ptrdiff_t>(cell);
    const Action action = *at;
    std::string expected;
    switch (random() % 4) {
      case 0: {  // doubled, anywhere behind
        const std::size_t behind = cell + 1 + random() % (list.size() - cell);
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(behind), action);
        expected = place(rank, behind);
        break;
      }
      case 1:  // unknown microbatch
        at->microbatch += 1000;
        expected = place(rank, cell);
        break;
      case 2:  // unknown stage
        at->stage += 1000;
        expected = place(rank, cell);
        break;
      default:  // missing: seen at the next cell that needs it, or at the end
        list.erase(at);
        expected = "rank " + std::to_string(rank);
        break;
    }
    const CheckReport report = check_random(plan, made);
    ASSERT_FALSE(report.ok()) << "trial " << trial;
    const std::string& text = report.problems.front();
    ASSERT_TRUE(text.starts_with(expected)) << "trial " << trial << ": expected " << expected << ", got " << text;
  }
}

TEST(RandomPlans, CyclesAreFound) {
  std::mt19937_64 random(3);
  int cycles = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    RandomPlan made = random_plan(random);
    // A cell moved back, past cells of other stages: its row alone may still look sound.
    const std::size_t rank = random() % made.plan.ranks.size();
    ActionList& list = made.plan.ranks[rank];
    const std::size_t a = random() % list.size(), b = random() % list.size();
    if (a >= b || list[a].stage == list[b].stage) continue;
    std::rotate(list.begin() + static_cast<std::ptrdiff_t>(a), list.begin() + static_cast<std::ptrdiff_t>(a) + 1,
                list.begin() + static_cast<std::ptrdiff_t>(b) + 1);
    const CheckReport report = check_random(made.plan, made);
    const std::int64_t all = made.microbatches * made.updates;
    const std::vector<std::int64_t> slots(static_cast<std::size_t>(made.placement.stages()), all);
    ToyPipeline pipeline(rules_of(made), made.plan, slots, static_cast<int>(all));
    pipeline.begin_segment(all);
    const bool cycle = std::any_of(report.problems.begin(), report.problems.end(), [](const std::string& problem) {
      return problem.find("can never start") != std::string::npos;
    });
    if (report.ok()) {
      ASSERT_NO_THROW(run_together_shuffled(pipeline.all(), random())) << "trial " << trial;
    } else if (cycle) {
      ASSERT_ANY_THROW(run_together_shuffled(pipeline.all(), random())) << "trial " << trial;
      cycles += report.problems.front().find("can never start") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GT(cycles, 50);
}

}  // namespace
}  // namespace minipipe::schedules
