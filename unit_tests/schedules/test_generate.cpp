#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "schedules/check/checker.hpp"
#include "schedules/error.hpp"
#include "schedules/generate/generate.hpp"
#include "schedules/generate/generators.hpp"
#include "schedules/simulate/efficiency.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::schedules {
namespace {

ScheduleOptions options(const std::string& name, int ranks, std::int64_t window, int chunks = 1) {
  ScheduleOptions result;
  result.name = name;
  result.stages = ranks * chunks;
  result.window = window;
  result.chunks = chunks;
  return result;
}

SimulationResult run(const ScheduleOptions& schedule, std::int64_t updates, double f = 1, double i = 1, double w = 1) {
  return simulate(schedule, Costs::equal(schedule.stages, f, i, w), updates * schedule.window);
}

// Seconds of an update in a long run: the difference of two runs takes the one fill and drain away.
double step_seconds(const ScheduleOptions& schedule, double f = 1, double i = 1, double w = 1) {
  return (run(schedule, 6, f, i, w).makespan - run(schedule, 3, f, i, w).makespan) / 3;
}

constexpr int kRanks = 8;
constexpr std::int64_t kWindows[] = {8, 16, 32};

TEST(Generate, InterleavedMatchesItsClosedForm) {
  for (const int chunks : {1, 2, 3, 4}) {
    for (const std::int64_t m : kWindows) {
      const auto result = run(options("interleaved", kRanks, m, chunks), 1, 1, 1, 1);
      EXPECT_NEAR((1 - result.bubble_share) / interleaved_efficiency(kRanks, m, chunks), 1, 1e-3)
          << "m=" << m << " v=" << chunks;
      // The first rank holds (1 + (N-1)/(N v)) times the activations of 1F1B.
      const std::int64_t peak = chunks == 1 ? kRanks : std::min<std::int64_t>(kRanks * chunks + kRanks - 1, m * chunks);
      EXPECT_EQ(result.rank_peak[0], peak) << "m=" << m << " v=" << chunks;
    }
  }
}

TEST(Generate, ZeroBubbleSchedulesMatchTheirClosedForms) {
  struct Times {
    double f, i, w;
  };
  for (const Times t : {Times{1, 1, 1}, Times{1, 1.25, 0.75}}) {
    const double work = t.f + t.i + t.w;
    for (const std::int64_t m : kWindows) {
      const double ideal = static_cast<double>(m) * work;
      const double h1 = run(options("zb-h1", kRanks, m), 1, t.f, t.i, t.w).makespan;
      EXPECT_NEAR(h1, ideal + zb_h1_bubble(kRanks, t.f, t.i, t.w), 1e-3 * h1) << "m=" << m;
    }
  }
  for (const std::int64_t m : kWindows) {
    const double ideal = static_cast<double>(m) * 3;
    // No update waits for another stage: in a run the pipe is filled once.
    if (m >= 2 * kRanks - 1) {
      EXPECT_NEAR(step_seconds(options("zb-h2", kRanks, m)), ideal + zb_h2_bubble(kRanks, 1, 1, 1), 1e-3 * ideal) << "m=" << m;
      EXPECT_NEAR(step_seconds(options("zb-v", kRanks, m, 2)), 2 * ideal + zb_v_bubble(), 2e-3 * ideal) << "m=" << m;
    }
  }
}

TEST(Generate, PeaksOfTheZeroBubbleSchedules) {
  constexpr double kActivations = 1, kKept = 0.625;
  for (const std::int64_t m : {16, 32}) {
    const Plan h1 = zb_h1_update(kRanks, m), h2 = zb_h2_update(kRanks, m), v = zb_v_update(kRanks, m);
    for (int stage = 0; stage < kRanks; ++stage) {
      const auto s = static_cast<std::size_t>(stage);
      const int i = stage + 1;
      EXPECT_EQ(peak_memory(h1.ranks[s], kActivations, kKept), (kRanks - i + 1) * kActivations + (i - 1) * kKept);
      EXPECT_EQ(peak_memory(h2.ranks[s], kActivations, kKept), (2 * kRanks - 2 * i + 1) * kActivations + (2 * i - 2) * kKept);
      EXPECT_EQ(activation_slots(options("zb-h1", kRanks, m), stage), kRanks);
      EXPECT_EQ(activation_slots(options("zb-h2", kRanks, m), stage), 2 * kRanks - 1);
      // Two stages of half the size each.
      EXPECT_EQ(measure(v.ranks[s]).peak_in_flight, 2 * kRanks) << "rank " << stage;
    }
  }
}

TEST(Generate, SearchedScheduleObeysItsLimitAndIsNoWorseThanTheHandMadeOnes) {
  const auto span = [](const SimulationResult& result) {
    double longest = 0;
    for (const ActionLog& log : result.log.ranks) {
      longest = std::max(longest, log[log.size() - 2].end_s - log.front().start_s);
    }
    return longest;
  };
  for (const PassCosts costs : {PassCosts{1, 1, 1}, PassCosts{1, 1.3, 0.7}, PassCosts{1, 0.8, 1.2}}) {
    for (const std::int64_t m : {5, 16}) {
      double before = 1e300;
      for (const double limit : {1.0, 3.0, 8.0, 12.0, 15.0, 20.0}) {
        ScheduleOptions schedule = options("zb-auto", kRanks, m);
        schedule.memory_limit = limit;
        schedule.costs = costs;
        const auto result = run(schedule, 1, costs.forward, costs.backward_input, costs.backward_weight);
        EXPECT_LE(*std::max_element(result.peak_in_flight.begin(), result.peak_in_flight.end()), limit);
        EXPECT_LE(span(result), before + 1e-9) << "limit " << limit << " m=" << m;
        before = span(result) * 1.02;  // more memory may cost a little: the search is a heuristic
        for (const char* name : {"zb-h1", "zb-h2"}) {
          if (limit < (std::string(name) == "zb-h1" ? kRanks : 2 * kRanks - 1)) continue;
          const auto hand = run(options(name, kRanks, m), 1, costs.forward, costs.backward_input, costs.backward_weight);
          EXPECT_LE(span(result), span(hand) + 1e-9) << name << " limit " << limit << " m=" << m;
        }
      }
    }
  }
  ScheduleOptions schedule = options("zb-auto", kRanks, 16);
  EXPECT_EQ(activation_slots(schedule, 0), kRanks);  // no limit given: N
}

TEST(Generate, EveryScheduleIsLegalForAnyNumberOfMicrobatches) {
  for (const std::string& name : schedule_names()) {
    if (name == "plan") continue;
    for (const int ranks : {1, 2, 3, 5}) {
      for (const int chunks : {1, 2, 3}) {
        if ((name == "zb-v") != (chunks == 2) && name != "interleaved") continue;
        for (std::int64_t m = 1; m <= 2 * ranks + 3; ++m) {
          if (name == "pipedream-2bw" && m < ranks * chunks) continue;
          const ScheduleOptions schedule = options(name, ranks, m, chunks);
          const Placement placement = placement_for(schedule, name == "zb-v" || name == "interleaved" ? ranks : ranks * chunks);
          const Plan plan = generate_plan(schedule, placement, 2, 3);
          const std::int64_t window = effective_window(schedule);
          CheckRange range{2 * window, 3 * window, 2};
          range.placement = placement;
          const CheckReport report = check(plan, schedule, range);
          EXPECT_TRUE(report.ok()) << name << " ranks " << ranks << " chunks " << chunks << " m=" << m << ": "
                                   << report.problems.front();
          if (!is_planned(name)) continue;
          for (const ActionList& list : plan.ranks) EXPECT_EQ(list.back().kind, Kind::update) << name;
          const auto result = run(schedule, 2);
          EXPECT_TRUE(check(result.log, schedule, {0, 2 * m, 0}).ok()) << name << " m=" << m;
        }
      }
    }
  }
}

TEST(Generate, FlushPlansOnBlocksOfStages) {
  const ScheduleOptions schedule = options("1f1b", 5, 4);
  const Placement placement = placement_for(schedule, 2);
  const Plan plan = generate_plan(schedule, placement, 0, 2);
  EXPECT_EQ(placement_of(plan, 2), placement);
  CheckRange range{0, 8, 0};
  range.placement = placement;
  const CheckReport report = check(plan, schedule, range);
  EXPECT_TRUE(report.ok()) << report.problems.front();
}

TEST(Generate, RulesAreStatedAtOnce) {
  const auto text = [](const ScheduleOptions& schedule) -> std::string {
    try {
      validate(schedule);
    } catch (const InputError& error) {
      return error.what();
    }
    return "accepted";
  };
  using testing::HasSubstr;
  ScheduleOptions uneven = options("interleaved", 3, 4, 2);
  uneven.stages = 7;
  EXPECT_THAT(text(uneven), HasSubstr("7 stages are not a multiple of chunks = 2"));
  EXPECT_THAT(text(options("interleaved", 3, 4, 0)), HasSubstr("number of stages is 0"));
  EXPECT_THAT(text(options("zb-v", 4, 4)), HasSubstr("needs chunks = 2"));
  EXPECT_THAT(text(options("pipedream-2bw", 4, 3)), HasSubstr("as many microbatches per update as stages, 4, or more, not 3"));
  EXPECT_THAT(text(options("plan", 4, 3)), HasSubstr("schedule.plan"));
  ScheduleOptions little = options("zb-auto", 4, 3);
  little.memory_limit = 1e300;  // no limit at all
  EXPECT_EQ(text(little), "accepted");
  little.memory_limit = 0.5;
  EXPECT_THAT(text(little), HasSubstr("memory_limit of 1 or more"));
  little.memory_limit = 0;
  little.costs.forward = 0;
  EXPECT_THAT(text(little), HasSubstr("costs above 0"));
  EXPECT_THROW(generate_plan(options("zb-h1", 4, 3), blocks(4, 2), 0, 1), InputError);
  EXPECT_THROW(generate_plan(options("zb-h1", 4, 3), one_stage_per_rank(4), 0, 0), InputError);
  EXPECT_THROW(make_policy(options("zb-v", 2, 3, 2), 0), InputError);  // two stages, one order
}

TEST(Placement, MakersAndReadingOff) {
  EXPECT_EQ(one_stage_per_rank(3).rank_of_stage, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(looped(2, 3).rank_of_stage, (std::vector<int>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(vee(3).rank_of_stage, (std::vector<int>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(blocks(7, 3).rank_of_stage, (std::vector<int>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(vee(3).stages_of(1), (std::vector<int>{1, 4}));
  EXPECT_EQ(placement_for(options("interleaved", 2, 4, 3)), looped(2, 3));
  EXPECT_EQ(placement_for(options("zb-v", 3, 4, 2)), vee(3));
  EXPECT_EQ(placement_for(options("1f1b", 7, 4), 3), blocks(7, 3));
  EXPECT_THROW(placement_for(options("zb-h1", 4, 4), 2), InputError);
  EXPECT_THROW(placement_for(options("1f1b", 2, 4), 3), InputError);
  EXPECT_THROW(placement_for(options("interleaved", 2, 4, 3), 3), InputError);
  const Plan plan = generate_plan(options("zb-v", 3, 4, 2), vee(3), 0, 1);
  EXPECT_EQ(placement_of(plan, 3), vee(3));
  EXPECT_THROW(placement_of(plan, 4), InputError);
}

// Of many stages not every order between H1 and H2 is tried, but the two are.
TEST(ZeroBubble, SearchedIsNoWorseThanHandMadeForManyStages) {
  constexpr int kMany = 40;
  const auto makespan = [](const std::string& name) {
    ScheduleOptions schedule;
    schedule.name = name;
    schedule.stages = kMany;
    schedule.window = 90;
    schedule.memory_limit = 2 * kMany - 1;
    return simulate(schedule, Costs::equal(kMany, 1, 1, 1), schedule.window).makespan;
  };
  EXPECT_LE(makespan("zb-auto"), std::min(makespan("zb-h1"), makespan("zb-h2")));
}

}  // namespace
}  // namespace minipipe::schedules
