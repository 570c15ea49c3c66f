#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "schedules/check/checker.hpp"
#include "schedules/check/versions.hpp"
#include "schedules/error.hpp"
#include "schedules/exec/run_together.hpp"
#include "schedules/generate/generate.hpp"
#include "schedules/simulate/simulator.hpp"
#include "unit_tests/schedules/toy_pipeline.hpp"

namespace minipipe::schedules {
namespace {

// The schedules on the executor with toy stages: equal results of all synchronous ones, weight rules of the asynchronous ones.

ScheduleOptions options(const std::string& name, int stages, std::int64_t window, int chunks = 1) {
  ScheduleOptions result;
  result.name = name;
  result.stages = stages;
  result.window = window;
  result.chunks = chunks;
  return result;
}

Log run(ToyPipeline& pipeline, const std::vector<std::int64_t>& ends, std::uint64_t seed) {
  for (const std::int64_t end : ends) {
    pipeline.begin_segment(end);
    run_together_shuffled(pipeline.all(), seed);
  }
  return pipeline.collect_logs();
}

void expect_result(const ToyPipeline& pipeline, const ToyResult& expected, const std::string& what) {
  EXPECT_EQ(pipeline.weights(), expected.weights) << what;
  EXPECT_EQ(pipeline.stages.back()->losses(), expected.losses) << what;
}

TEST(Family, SynchronousSchedulesGiveTheBitsOfOneForwardOneBackward) {
  for (const std::string& name : schedule_names()) {
    if (is_asynchronous(name) || name == "plan") continue;
    for (const int ranks : {1, 2, 3}) {
      for (const int chunks : {1, 2, 3}) {
        if (name == "zb-v" && chunks != 2) continue;
        for (const std::int64_t m : {1, 2, 3, 4, 7}) {
          const ScheduleOptions schedule = options(name, ranks * chunks, m, chunks);
          const std::string what = name + " N=" + std::to_string(ranks) + " m=" + std::to_string(m);
          ToyPipeline flush(options("1f1b", ranks * chunks, m)), pipeline(schedule);
          run(flush, {4 * m}, 0);
          const Log& log = run(pipeline, {m, 3 * m, 4 * m}, static_cast<std::uint64_t>(m));
          expect_result(pipeline, {flush.weights(), flush.stages.back()->losses()}, what);
          const CheckReport report = check(log, schedule, {0, 4 * m, 0});
          EXPECT_TRUE(report.ok()) << what << ": " << report.problems.front();
          for (std::size_t s = 0; s < pipeline.executors.size(); ++s)
            EXPECT_EQ(pipeline.executors[s]->peak_in_flight(), activation_slots(schedule, static_cast<int>(s))) << what;
        }
      }
    }
  }
}

TEST(Family, PlannedSegmentsEndEarlyBetweenUpdates) {
  const ScheduleOptions schedule = options("zb-v", 6, 4, 2);
  ToyPipeline pipeline(schedule);
  pipeline.begin_segment(40);
  while (pipeline.executors[0]->state().forwards < 9) {
    for (Executor* executor : pipeline.all()) executor->advance();
  }
  for (Executor* executor : pipeline.all()) executor->lower_segment_end(12);
  run_together(pipeline.all());
  pipeline.begin_segment(16);
  run_together(pipeline.all());
  expect_result(pipeline, serial_toy(6, 4, 16, [](int, std::int64_t k) { return k / 4; }), "lowered");
}

TEST(Family, ARankDoesItsListInOrder) {
  const ScheduleOptions schedule = options("interleaved", 6, 4, 3);
  const Plan plan = generate_plan(schedule, looped(2, 3), 0, 1);
  ToyPipeline pipeline(schedule);
  pipeline.begin_segment(4);
  run_together_shuffled(pipeline.all(), 7);
  const Log& log = pipeline.collect_logs();
  for (std::size_t rank = 0; rank < 2; ++rank) {
    std::vector<LoggedAction> entries;
    for (std::size_t s = rank; s < 6; s += 2) {
      std::copy_if(log.ranks[s].begin(), log.ranks[s].end(), std::back_inserter(entries),
                   [](const LoggedAction& entry) { return entry.action.kind != Kind::drain; });
    }
    std::sort(entries.begin(), entries.end(),
              [](const LoggedAction& a, const LoggedAction& b) { return a.start_s < b.start_s; });
    ActionList order;
    for (const LoggedAction& entry : entries) order.push_back(entry.action);
    EXPECT_EQ(order, plan.ranks[rank]);
  }
}

// All of the histogram's weight above `from` lies on one value, that many updates.
void expect_steady(const std::vector<std::int64_t>& values, std::size_t from, std::int64_t expected, const std::string& what) {
  ASSERT_GT(values.size(), from);
  for (std::size_t k = from; k < values.size(); ++k) EXPECT_EQ(values[k], expected) << what << " microbatch " << k;
}

struct Steady {
  std::vector<std::int64_t> gaps, delays;
};

Steady versions(const ActionList& list, const ScheduleOptions& schedule) {
  Steady result;
  for (const PassVersions& pass : versions_of(list, schedule)) {
    result.gaps.push_back(*pass.backward - pass.forward);
    result.delays.push_back(*pass.applied - pass.forward);
  }
  return result;
}

TEST(Family, GapsAndDelaysOfTheAsynchronousSchedulesFromExecutorLogs) {
  for (const int stages : {1, 2, 5, 8}) {
    for (const char* name : {"async-1f1b", "pipedream", "pipedream-2bw"}) {
      const std::int64_t window = stages + 2, microbatches = 4 * window;
      const ScheduleOptions schedule = options(name, stages, window);
      ToyPipeline pipeline(schedule);
      const Log log = run(pipeline, {microbatches}, 3);
      const CheckReport report = check(log, schedule, {0, microbatches, 0});
      EXPECT_TRUE(report.ok()) << name << ": " << report.problems.front();
      const Plan plan = log.plan();
      for (int stage = 0; stage < stages; ++stage) {
        const auto s = static_cast<std::size_t>(stage);
        const std::string what = std::string(name) + " stage " + std::to_string(stage) + " of " + std::to_string(stages);
        const std::int64_t behind = stages - 1 - stage;
        const bool plain = schedule.name == "async-1f1b", doubled = schedule.name == "pipedream-2bw";
        const Steady steady = versions(plan.ranks[s], schedule);
        // What the stage itself recorded is the same.
        const ToyStage& toy = *pipeline.stages[s];
        for (std::size_t k = 0; k < steady.gaps.size(); ++k)
          EXPECT_EQ(toy.backward_versions()[k] - toy.forward_versions()[k], steady.gaps[k]) << what;
        expect_steady(steady.gaps, static_cast<std::size_t>(stages), plain ? behind : 0, what);
        expect_steady(steady.delays, static_cast<std::size_t>(window), doubled ? 1 : behind, what);
        EXPECT_EQ(version_gap_bound(schedule, stage), plain ? behind : 0) << what;
        EXPECT_EQ(gradient_delay_bound(schedule, stage), doubled ? 1 : behind) << what;
        EXPECT_EQ(weight_copies(schedule, stage), plain ? 1 : doubled ? 2 : behind + 1) << what;
        EXPECT_EQ(activation_slots(schedule, stage), behind + 1) << what;
        EXPECT_EQ(report.ranks[s].gap_max, plain ? behind : 0) << what;
      }
    }
  }
}

TEST(Family, AsynchronousSchedulesEqualSerialTrainingWithTheirVersions) {
  for (const int stages : {1, 3, 6}) {
    const std::int64_t window = stages + 1, microbatches = 5 * window;
    const VersionOf delayed = [stages](int s, std::int64_t k) { return k - std::min<std::int64_t>(stages - 1 - s, k); };
    const VersionOf buffered = [window](int, std::int64_t k) { return std::max<std::int64_t>(k / window - 1, 0); };
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      ToyPipeline plain(options("async-1f1b", stages, window)), stashed(options("pipedream", stages, window)),
          doubled(options("pipedream-2bw", stages, window)), mare(options("pipemare", stages, window));
      for (ToyPipeline* pipeline : {&plain, &stashed, &doubled, &mare}) run(*pipeline, {microbatches}, seed);
      expect_result(plain, serial_toy(stages, 1, microbatches, delayed), "async-1f1b");
      expect_result(stashed, serial_toy(stages, 1, microbatches, delayed, delayed), "pipedream");
      expect_result(doubled, serial_toy(stages, window, microbatches, buffered, buffered), "pipedream-2bw");
      const auto logged = [&](int s, std::int64_t k) {
        return mare.stages[static_cast<std::size_t>(s)]->forward_versions().at(static_cast<std::size_t>(k));
      };
      expect_result(mare, serial_toy(stages, window, microbatches, logged), "pipemare");
    }
  }
}

TEST(Family, DrainsAndSynchronousUpdates) {
  for (const char* name : {"async-1f1b", "pipedream", "pipedream-2bw", "pipemare"}) {
    ScheduleOptions schedule = options(name, 4, 4);
    schedule.synchronous_updates = 3;
    ToyPipeline pipeline(schedule);
    const Log log = run(pipeline, {12, 20, 32}, 5);
    const CheckReport report = check(log, schedule, {0, 32, 0});
    EXPECT_TRUE(report.ok()) << name << ": " << report.problems.front();
    const std::int64_t synchronous = 3 * effective_window(schedule);
    for (const ActionList& list : log.plan().ranks) {
      const Steady steady = versions(list, schedule);
      for (std::size_t k = 0; k < static_cast<std::size_t>(synchronous); ++k) EXPECT_EQ(steady.delays[k], 0) << name;
    }
  }
}

TEST(Family, ForwardSkewAcrossStages) {
  // Highest difference at N = 8 for a = 1, 4, 8, 16.
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{{1, 7}, {4, 2}, {8, 1}, {16, 1}};
  for (const auto& [window, skew] : expected) {
    const ScheduleOptions schedule = options("paci", 8, window);
    const auto result = simulate(schedule, Costs::equal(8, 1, 1, 1), 64);
    const VersionReport report = measure_versions(result.log.plan(), schedule);
    ASSERT_EQ(report.skew.size(), 64u);
    EXPECT_EQ(*std::max_element(report.skew.begin(), report.skew.end()), skew) << "a=" << window;
    EXPECT_EQ(report.gap_histogram[0].size(), static_cast<std::size_t>(skew) + 1) << "a=" << window;
    EXPECT_EQ(report.delay_histogram[0], report.gap_histogram[0]);
    EXPECT_EQ(report.gap_histogram[7], (std::vector<std::int64_t>{64}));
  }
  const ScheduleOptions doubled = options("pipedream-2bw", 8, 8);
  const auto result = simulate(doubled, Costs::equal(8, 1, 1, 1), 64);
  const VersionReport report = measure_versions(result.log.plan(), doubled);
  EXPECT_EQ(*std::max_element(report.skew.begin(), report.skew.end()), 0);  // one version for all stages
  for (const auto& delays : report.delay_histogram) EXPECT_EQ(delays, (std::vector<std::int64_t>{8, 56}));
}

TEST(Family, TooFewWeightCopiesAreNoticed) {
  ToyStage::Options toy{.activation_slots = 2, .input = toy_input};
  toy.version_used = [](Kind kind, std::int64_t, std::int64_t now, std::int64_t forward) {
    return kind == Kind::forward ? now : forward;
  };
  ToyStage stage(toy);
  stage.forward(0, 0, -1, -1);
  stage.update(0);
  EXPECT_THROW(stage.backward_input(0, 0, -1, -1), RunError);
}

TEST(Family, CheckerKnowsTheWeightRules) {
  // What pipedream may do is too much for PACI with the same window, and the other way round.
  const ScheduleOptions schedule = options("pipedream", 4, 1);
  Plan plan = simulate(schedule, Costs::equal(4, 1, 1, 1), 12).log.plan();
  EXPECT_TRUE(check(plan, schedule, {0, 12, 0}).ok());
  EXPECT_FALSE(check(plan, options("1f1b", 4, 1), {0, 12, 0}).ok());
  // One more forward in flight on stage 2 than its stashed versions allow.
  ActionList& list = plan.ranks[2];
  const auto forward = std::find(list.begin(), list.end(), Action{Kind::forward, 2, 5});
  ASSERT_NE(forward, list.end());
  list.erase(forward);
  list.insert(std::find(list.begin(), list.end(), Action{Kind::backward, 2, 3}), Action{Kind::forward, 2, 5});
  const auto problems = check(plan, schedule, {0, 12, 0}).problems;
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems.front().find("rank 2, cell"), std::string::npos) << problems.front();
  EXPECT_NE(problems.front().find("(2F5)"), std::string::npos) << problems.front();
}

}  // namespace
}  // namespace minipipe::schedules
