#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "schedules/check/checker.hpp"
#include "schedules/error.hpp"
#include "schedules/simulate/efficiency.hpp"
#include "schedules/simulate/simulator.hpp"
#include "schedules/simulate/steady_step.hpp"

namespace minipipe::schedules {
namespace {

ScheduleOptions options(const std::string& name, int stages, std::int64_t window) {
  ScheduleOptions result;
  result.name = name;
  result.stages = stages;
  result.window = window;
  return result;
}

void expect_legal(const SimulationResult& result, const ScheduleOptions& schedule, std::int64_t microbatches) {
  const CheckReport report = check(result.log, schedule, {0, microbatches, 0, {}});
  EXPECT_TRUE(report.ok()) << schedule.name << " N=" << schedule.stages << " m=" << schedule.window << ": "
                           << report.problems.front();
}

// Makespan per microbatch in the steady state: the difference of two runs takes fill and drain away.
double steady_time(const ScheduleOptions& schedule, const Costs& costs, std::int64_t microbatches) {
  return (simulate(schedule, costs, 2 * microbatches).makespan - simulate(schedule, costs, microbatches).makespan) /
         static_cast<double>(microbatches);
}

TEST(Simulate, FlushMatchesItsClosedFormOverTheGrid) {
  constexpr double kForward = 3, kBackward = 5, kUpdate = 2;
  for (int stages = 1; stages <= 9; ++stages) {
    const Costs costs = Costs::equal(stages, kForward, kBackward - 1, 1, kUpdate);
    for (std::int64_t m = 1; m <= 3 * stages; ++m) {
      for (const char* name : {"gpipe", "1f1b"}) {
        const ScheduleOptions schedule = options(name, stages, m);
        const SimulationResult result = simulate(schedule, costs, 2 * m);
        const double step = static_cast<double>(stages - 1 + m) * (kForward + kBackward) + kUpdate;
        EXPECT_EQ(result.makespan, 2 * step) << name << " N=" << stages << " m=" << m;
        const double busy = 2 * (static_cast<double>(m) * (kForward + kBackward) + kUpdate);
        EXPECT_NEAR(result.bubble_share, 1 - busy / (2 * step), 1e-14);
        for (int stage = 0; stage < stages; ++stage) {
          const auto s = static_cast<std::size_t>(stage);
          const std::int64_t peak = std::string(name) == "gpipe" ? m : std::min<std::int64_t>(stages - stage, m);
          EXPECT_EQ(result.peak_in_flight[s], peak) << name << " N=" << stages << " m=" << m << " stage " << stage;
          EXPECT_EQ(result.gap_max[s], 0);
          EXPECT_EQ(result.busy[s], busy);
        }
        expect_legal(result, schedule, 2 * m);
      }
    }
  }
}

TEST(Simulate, PaciGapsAndPeaksOverTheGrid) {
  struct Variant {
    Order order;
    Ready ready;
  };
  for (const Variant variant : {Variant{Order::dynamic, Ready::alternate}, Variant{Order::dynamic, Ready::backward_first},
                                Variant{Order::fixed, Ready::alternate}}) {
    for (int stages = 1; stages <= 9; ++stages) {
      const Costs costs = Costs::equal(stages, 1, 1, 1);
      for (std::int64_t a = 1; a <= 3 * stages; ++a) {
        ScheduleOptions schedule = options("paci", stages, a);
        schedule.order = variant.order;
        schedule.ready = variant.ready;
        const std::int64_t steady = (3 * stages / a + 1) * a;  // the first microbatch looked at: a window's begin
        const std::int64_t microbatches = steady + (3 * stages / a + 2) * a;
        const SimulationResult result = simulate(schedule, costs, microbatches);
        expect_legal(result, schedule, microbatches);
        EXPECT_EQ(result.makespan, static_cast<double>(microbatches + stages - 1) * 3) << "N=" << stages << " a=" << a;
        for (int stage = 0; stage < stages; ++stage) {
          const auto s = static_cast<std::size_t>(stage);
          EXPECT_EQ(result.peak_in_flight[s], stages - stage) << "N=" << stages << " a=" << a << " stage " << stage;
          EXPECT_EQ(result.gap_max[s], version_gap_bound(schedule, stage))
              << "N=" << stages << " a=" << a << " stage " << stage;
          const auto gaps = measure(result.log.plan().ranks[s]).gaps;
          const auto begin = gaps.begin() + steady;
          EXPECT_EQ(std::accumulate(begin, begin + a, std::int64_t{0}), stages - 1 - stage)
              << "N=" << stages << " a=" << a << " stage " << stage;
        }
      }
    }
  }
}

TEST(Simulate, PaciWithSynchronousUpdatesAndExtraInFlight) {
  ScheduleOptions schedule = options("paci", 4, 3);
  schedule.synchronous_updates = 2;
  const SimulationResult result = simulate(schedule, Costs::equal(4, 1, 1, 1), 30);
  expect_legal(result, schedule, 30);
  const auto gaps = measure(result.log.plan().ranks[0]).gaps;
  EXPECT_EQ(std::count(gaps.begin(), gaps.begin() + 6, 0), 6);
  EXPECT_EQ(result.gap_max[0], 1);
  // Two flush steps, then a run of 24: no other bubbles.
  EXPECT_EQ(result.makespan, 3 * (2 * (3 + 3) + 24 + 3));

  schedule.synchronous_updates = 0;
  schedule.extra_in_flight = 3;
  const SimulationResult more = simulate(schedule, Costs::equal(4, 1, 1, 1, 0, 0.5), 60);
  expect_legal(more, schedule, 60);
  EXPECT_EQ(more.peak_in_flight, (std::vector<std::int64_t>{7, 6, 5, 1}));
  EXPECT_EQ(more.gap_max[0], 2);
  EXPECT_EQ(more.gap_max[3], 0);
}

TEST(Simulate, EachDrainCostsOneFill) {
  const ScheduleOptions schedule = options("paci", 8, 8);
  const Costs costs = Costs::equal(8, 1, 1, 1);
  EXPECT_EQ(simulate(schedule, costs, 64).makespan, 3 * (64 + 7));
  const SimulationResult result = simulate(schedule, costs, 64, {16, 40});
  EXPECT_EQ(result.makespan, 3 * (64 + 3 * 7));
  expect_legal(result, schedule, 64);
  for (const ActionLog& log : result.log.ranks) {
    EXPECT_EQ(std::count_if(log.begin(), log.end(), [](const LoggedAction& entry) { return entry.action.kind == Kind::drain; }),
              3);
  }
  EXPECT_NEAR(1 - simulate(schedule, costs, 64).bubble_share, paci_run_efficiency(8, 64), 1e-14);
}

TEST(Simulate, LatencyThrottlesPaci) {
  for (const int stages : {2, 4, 8}) {
    for (const double latency : {0.1, 0.25, 0.5, 1.0}) {
      const double time = steady_time(options("paci", stages, 8), Costs::equal(stages, 1, 1, 1, 0, latency), 400);
      EXPECT_NEAR(3 / time, paci_latency_efficiency(stages, 1, 2, latency), 0.02) << "N=" << stages << " latency " << latency;
    }
  }
  // Further forwards in flight buy some of it back.
  ScheduleOptions extra = options("paci", 8, 8);
  const Costs costs = Costs::equal(8, 1, 1, 1, 0, 0.25);
  const double plain = simulate(extra, costs, 800).makespan;
  extra.extra_in_flight = 4;
  EXPECT_LT(simulate(extra, costs, 800).makespan, 0.95 * plain);
}

TEST(Simulate, BackwardFirstOscillatesWithOneSlowStageAndAlternateDoesNot) {
  constexpr std::int64_t kMicrobatches = 800;
  for (const double factor : {1.5, 1.75, 2.0}) {
    for (const std::size_t slow : {0u, 3u}) {
      Costs costs = Costs::equal(8, 1, 1, 1);
      costs.forward[slow] = costs.backward_input[slow] = costs.backward_weight[slow] = factor;
      const double bound = kMicrobatches * 3 * factor;
      ScheduleOptions schedule = options("paci", 8, 8);
      EXPECT_LT(simulate(schedule, costs, kMicrobatches).makespan, 1.02 * bound) << factor << " stage " << slow;
      schedule.ready = Ready::backward_first;
      EXPECT_GT(simulate(schedule, costs, kMicrobatches).makespan, 1.1 * bound) << factor << " stage " << slow;
    }
  }
}

TEST(Simulate, PlanGivesTheSameTimesAsItsPolicy) {
  const ScheduleOptions schedule = options("1f1b", 4, 6);
  const Costs costs = Costs::equal(4, 1, 1, 1, 0.5, 0.25);
  const SimulationResult direct = simulate(schedule, costs, 12);
  const SimulationResult replayed = simulate(direct.log.plan(), costs);
  EXPECT_EQ(replayed.makespan, direct.makespan);
  EXPECT_EQ(replayed.busy, direct.busy);
  EXPECT_EQ(replayed.log.plan().ranks, direct.log.plan().ranks);
}

TEST(Simulate, SplitBackwardFillsBubbles) {
  // Two stages, one step: stage 0 delays its first weight gradient while it waits, stage 1 its own behind the input gradient.
  Plan plan;
  const auto cell = [](const char* text) { return *parse_action(text); };
  plan.ranks = {{cell("0F0"), cell("0F1"), cell("0I0"), cell("0W0"), cell("0I1"), cell("0W1"), cell("0U0")},
                {cell("1F0"), cell("1I0"), cell("1F1"), cell("1I1"), cell("1W0"), cell("1W1"), cell("1U0")}};
  EXPECT_TRUE(check(plan, options("gpipe", 2, 2), {0, 2, 0, {}}).ok());
  const SimulationResult result = simulate(plan, Costs::equal(2, 1, 1, 1));
  EXPECT_EQ(result.makespan, 7);  // whole backwards: (2 + 1) * 3
  EXPECT_EQ(result.busy, (std::vector<double>{6, 6}));
}

TEST(Simulate, ReportsDeadlockAndBadInput) {
  Plan plan;
  const auto cell = [](const char* text) { return *parse_action(text); };
  plan.ranks = {{cell("0F0"), cell("0B0"), cell("0F1"), cell("0B1")}, {cell("1F0"), cell("1F1"), cell("1B0"), cell("1B1")}};
  EXPECT_THROW(simulate(plan, Costs::equal(2, 1, 1, 1)), RunError);
  EXPECT_THROW(simulate(options("paci", 3, 2), Costs::equal(2, 1, 1, 1), 4), InputError);
  EXPECT_THROW(simulate(options("paci", 2, 2), Costs::equal(2, -1, 1, 1), 4), InputError);
  EXPECT_THROW(simulate(options("paci", 2, 2), Costs::equal(2, 1, 1, 1), 5), InputError);
  EXPECT_THROW(simulate(options("paci", 2, 2), Costs::equal(2, 1, 1, 1), 4, {3}), InputError);
  EXPECT_THROW(simulate(Plan{}, Costs::equal(2, 1, 1, 1)), InputError);
}

TEST(Efficiency, ClosedForms) {
  EXPECT_NEAR(flush_efficiency(8, 4), 4.0 / 11, 1e-15);
  EXPECT_EQ(flush_efficiency(1, 4), 1);
  EXPECT_NEAR(bubble_speed_up(8, 8), 15.0 / 8, 1e-15);
  EXPECT_NEAR(paci_run_efficiency(8, 800), 1 / 1.00875, 1e-15);
  EXPECT_NEAR(paci_latency_efficiency(8, 1, 2, 0.25), 0.873, 5e-4);
}

TEST(SteadyStep, IsThatOfALongRunWhateverTheStagesCost) {
  ScheduleOptions schedule;
  schedule.name = "paci";
  schedule.extra_in_flight = 3;
  for (const int stages : {2, 5}) {
    for (const std::int64_t window : {1, 2, 5}) {
      schedule.stages = stages;
      schedule.window = window;
      Costs costs = Costs::equal(stages, 1, 1, 1, 0.25, 0.5);
      for (int s = 0; s < stages; ++s) costs.backward_input[static_cast<std::size_t>(s)] = 1 + (3 * s + 1) % 5 * 0.4;
      constexpr std::int64_t updates = 400;
      const double one = simulate(schedule, costs, updates * window).makespan;
      const double two = simulate(schedule, costs, 2 * updates * window).makespan;
      const SteadyStep step = steady_step(schedule, costs);
      EXPECT_NEAR(step.time, (two - one) / updates, 0.02 * step.time) << stages << " stages, window " << window;
      EXPECT_LE(step.busy_share, 1);
    }
  }
}

}  // namespace
}  // namespace minipipe::schedules
