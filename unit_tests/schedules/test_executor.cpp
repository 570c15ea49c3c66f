#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/check/checker.hpp"
#include "schedules/error.hpp"
#include "schedules/exec/run_together.hpp"
#include "unit_tests/schedules/toy_pipeline.hpp"

namespace minipipe::schedules {
namespace {

ScheduleOptions options(const std::string& name, int stages, std::int64_t window, Order order = Order::dynamic) {
  ScheduleOptions result;
  result.name = name;
  result.stages = stages;
  result.window = window;
  result.order = order;
  return result;
}

void expect_equal(const ToyPipeline& pipeline, const ToyResult& expected, const std::string& what) {
  EXPECT_EQ(pipeline.weights(), expected.weights) << what;
  EXPECT_EQ(pipeline.stages.back()->losses(), expected.losses) << what;
}

void expect_legal(ToyPipeline& pipeline, const ScheduleOptions& schedule, std::int64_t microbatches) {
  const CheckReport report = check(pipeline.collect_logs(), schedule, {0, microbatches, 0, {}});
  EXPECT_TRUE(report.ok()) << report.problems.front();
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    EXPECT_EQ(pipeline.executors[s]->peak_in_flight(), report.ranks[s].peak_in_flight);
  }
}

// Version of the stage's weights at the forward of a microbatch, by hand: N-i microbatches are ahead of their backward, fewer
// while the pipe fills after a drain.
std::int64_t fixed_version(int stages, std::int64_t window, std::int64_t drain, int stage, std::int64_t microbatch) {
  const std::int64_t behind = std::min<std::int64_t>(stages - 1 - stage, microbatch - drain);
  return (microbatch - behind) / window;
}

TEST(Executor, FlushSchedulesEqualSerialTrainingOverTheGrid) {
  for (const char* name : {"gpipe", "1f1b"}) {
    for (int stages = 1; stages <= 5; ++stages) {
      for (std::int64_t m = 1; m <= 3 * stages; ++m) {
        const ToyResult expected = serial_toy(stages, m, 3 * m, [m](int, std::int64_t k) { return k / m; });
        for (std::uint64_t seed = 0; seed < 3; ++seed) {
          const ScheduleOptions schedule = options(name, stages, m);
          ToyPipeline pipeline(schedule, 1 + static_cast<int>(seed));
          pipeline.begin_segment(3 * m);
          run_together_shuffled(pipeline.all(), seed);
          expect_equal(pipeline, expected, std::string(name) + " N=" + std::to_string(stages) + " m=" + std::to_string(m));
          expect_legal(pipeline, schedule, 3 * m);
        }
      }
    }
  }
}

TEST(Executor, FixedPaciEqualsHandMadeVersionsOverTheGrid) {
  for (int stages = 1; stages <= 6; ++stages) {
    for (std::int64_t a = 1; a <= 2 * stages; ++a) {
      const std::int64_t microbatches = (2 * stages / a + 3) * a;
      const ToyResult expected =
          serial_toy(stages, a, microbatches, [&](int s, std::int64_t k) { return fixed_version(stages, a, 0, s, k); });
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        const ScheduleOptions schedule = options("paci", stages, a, Order::fixed);
        ToyPipeline pipeline(schedule);
        pipeline.begin_segment(microbatches);
        run_together_shuffled(pipeline.all(), seed);
        expect_equal(pipeline, expected, "N=" + std::to_string(stages) + " a=" + std::to_string(a));
        expect_legal(pipeline, schedule, microbatches);
      }
    }
  }
}

TEST(Executor, FixedPaciWithDrainsAndSynchronousUpdates) {
  ScheduleOptions schedule = options("paci", 4, 3, Order::fixed);
  schedule.synchronous_updates = 2;
  ToyPipeline pipeline(schedule);
  for (const std::int64_t end : {15, 24, 33}) {
    pipeline.begin_segment(end);
    run_together(pipeline.all());
  }
  const auto version = [](int s, std::int64_t k) -> std::int64_t {
    if (k < 6) return k / 3;
    return fixed_version(4, 3, k < 15 ? 6 : k < 24 ? 15 : 24, s, k);
  };
  expect_equal(pipeline, serial_toy(4, 3, 33, version), "with drains");
  expect_legal(pipeline, schedule, 33);
  const ActionLog& log = pipeline.logs.ranks[1];
  EXPECT_EQ(std::count_if(log.begin(), log.end(), [](const LoggedAction& entry) { return entry.action.kind == Kind::drain; }),
            3);
  EXPECT_EQ(log.back().action, (Action{Kind::drain, 1, 33}));
}

TEST(Executor, DynamicPaciEqualsSerialTrainingWithItsLoggedVersionsAndItsReplay) {
  bool orders_differ = false;
  std::vector<ActionList> first_order;
  for (const Ready ready : {Ready::alternate, Ready::backward_first}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      ScheduleOptions schedule = options("paci", 5, 3);
      schedule.ready = ready;
      schedule.extra_in_flight = static_cast<int>(seed % 3);
      ToyPipeline pipeline(schedule);
      for (const std::int64_t end : {12, 30}) {
        pipeline.begin_segment(end);
        run_together_shuffled(pipeline.all(), seed);
      }
      expect_legal(pipeline, schedule, 30);
      const auto version = [&](int s, std::int64_t k) {
        return pipeline.stages[static_cast<std::size_t>(s)]->forward_versions().at(static_cast<std::size_t>(k));
      };
      expect_equal(pipeline, serial_toy(5, 3, 30, version), "seed " + std::to_string(seed));

      const std::vector<ActionList> order = pipeline.logs.plan().ranks;
      if (first_order.empty()) first_order = order;
      orders_differ |= order != first_order;
      ToyPipeline replay(schedule);
      for (std::size_t s = 0; s < 5; ++s) replay.executors[s]->set_policy(make_list_policy(order[s]));
      for (const std::int64_t end : {12, 30}) {
        replay.begin_segment(end);
        run_together_shuffled(replay.all(), seed + 100);
      }
      EXPECT_EQ(replay.collect_logs().plan().ranks, order);
      EXPECT_EQ(replay.weights(), pipeline.weights());
      EXPECT_EQ(replay.stages.back()->losses(), pipeline.stages.back()->losses());
    }
  }
  EXPECT_TRUE(orders_differ) << "the random order of turns has no effect: the test proves nothing";
}

TEST(Executor, BackwardVersionsAreTheUpdatesDone) {
  ToyPipeline pipeline(options("paci", 3, 2));
  pipeline.begin_segment(10);
  run_together(pipeline.all());
  for (const auto& stage : pipeline.stages) {
    ASSERT_EQ(stage->backward_versions().size(), 10u);
    for (std::size_t k = 0; k < 10; ++k) EXPECT_EQ(stage->backward_versions()[k], static_cast<std::int64_t>(k) / 2);
  }
}

TEST(Executor, LoweredSegmentEndDrainsEarly) {
  for (const char* name : {"gpipe", "1f1b", "paci"}) {
    const ScheduleOptions schedule = options(name, 4, 3, Order::fixed);
    ToyPipeline pipeline(schedule);
    pipeline.begin_segment(60);
    while (pipeline.executors[0]->state().forwards < 8) {
      for (Executor* executor : pipeline.all()) executor->advance();
    }
    for (Executor* executor : pipeline.all()) {
      EXPECT_THROW(executor->lower_segment_end(63), RunError);
      executor->lower_segment_end(9);
    }
    EXPECT_THROW(pipeline.executors[0]->lower_segment_end(6), RunError);
    run_together(pipeline.all());
    for (const auto& executor : pipeline.executors) {
      EXPECT_EQ(executor->state().weights, 9);
      EXPECT_EQ(executor->state().updates, 3);
    }
    pipeline.begin_segment(15);
    run_together(pipeline.all());
    const bool flush = std::string(name) != "paci";
    const auto version = [flush](int s, std::int64_t k) { return flush ? k / 3 : fixed_version(4, 3, k < 9 ? 0 : 9, s, k); };
    expect_equal(pipeline, serial_toy(4, 3, 15, version), name);
    expect_legal(pipeline, schedule, 15);
  }
}

// A replayed log has no drain where a stop makes one.
TEST(Executor, AListDrainsWhereTheSegmentIsCut) {
  const ScheduleOptions schedule = options("paci", 4, 3);
  ToyPipeline recorded(schedule);
  recorded.begin_segment(60);
  run_together(recorded.all());
  const Plan order = recorded.collect_logs().plan();
  ToyPipeline replay(schedule);
  for (std::size_t s = 0; s < 4; ++s) replay.executors[s]->set_policy(make_list_policy(order.ranks[s]));
  replay.begin_segment(60);
  while (replay.executors[0]->state().forwards < 8) {
    for (Executor* executor : replay.all()) executor->advance();
  }
  for (Executor* executor : replay.all()) executor->lower_segment_end(9);
  run_together(replay.all());
  for (const auto& executor : replay.executors) {
    EXPECT_EQ(executor->state().weights, 9);
    EXPECT_EQ(executor->state().updates, 3);
  }
  expect_legal(replay, schedule, 9);
}

TEST(Executor, SplitBackwardGivesTheSameResult) {
  const ScheduleOptions schedule = options("gpipe", 2, 2);
  ToyPipeline pipeline(schedule);
  const auto cell = [](const char* text) { return *parse_action(text); };
  pipeline.executors[0]->set_policy(
      make_list_policy({cell("0F0"), cell("0F1"), cell("0I0"), cell("0W0"), cell("0I1"), cell("0W1"), cell("0U0")}));
  pipeline.executors[1]->set_policy(
      make_list_policy({cell("1F0"), cell("1I0"), cell("1F1"), cell("1I1"), cell("1W0"), cell("1W1"), cell("1U0")}));
  pipeline.begin_segment(2);
  run_together(pipeline.all());
  expect_equal(pipeline, serial_toy(2, 2, 2, [](int, std::int64_t) { return 0; }), "split");
  expect_legal(pipeline, schedule, 2);
}

TEST(Executor, ForwardsOnlyThenTrainingGoesOn) {
  ToyPipeline pipeline(options("1f1b", 3, 2));
  pipeline.begin_segment(4);
  run_together(pipeline.all());
  for (auto& executor : pipeline.executors) {
    executor->set_policy(make_forward_only_policy());
    executor->start_at(0, 2);
  }
  pipeline.begin_segment(9);  // more than there are activation slots
  run_together(pipeline.all());
  EXPECT_EQ(pipeline.stages.back()->losses().size(), 13u);
  for (std::size_t s = 0; s < 3; ++s) {
    pipeline.executors[s]->set_policy(make_policy(options("1f1b", 3, 2), static_cast<int>(s)));
    EXPECT_THROW(pipeline.executors[s]->begin_segment(12), RunError) << "the forwards have no backwards";
    pipeline.executors[s]->start_at(4, 2);
  }
  pipeline.begin_segment(8);
  run_together(pipeline.all());
  EXPECT_EQ(pipeline.weights(), serial_toy(3, 2, 8, [](int, std::int64_t k) { return k / 2; }).weights);
}

TEST(Executor, SecondsAddUpToTheSegment) {
  ToyPipeline pipeline(options("paci", 3, 2));
  double begin[3], end[3] = {0, 0, 0};
  for (std::size_t s = 0; s < 3; ++s) {
    pipeline.executors[s]->begin_segment(12);
    begin[s] = pipeline.now;
  }
  while (!std::all_of(end, end + 3, [](double time) { return time > 0; })) {
    for (std::size_t s = 0; s < 3; ++s) {
      pipeline.executors[s]->advance();
      if (pipeline.executors[s]->finished() && end[s] == 0) end[s] = pipeline.now;
    }
  }
  for (std::size_t s = 0; s < 3; ++s) {
    const StageSeconds& seconds = pipeline.executors[s]->seconds();
    EXPECT_EQ(seconds.compute + seconds.update + seconds.wait_input + seconds.send, end[s] - begin[s]);
    EXPECT_EQ(seconds.compute, 24);  // the clock moves one second between begin and end of an action
    EXPECT_EQ(seconds.update, 6);
    EXPECT_GT(seconds.wait_input, 0);
  }
}

TEST(Executor, DeadlockIsReportedWithAllStates) {
  ToyPipeline pipeline(options("gpipe", 2, 2));
  const auto cell = [](const char* text) { return *parse_action(text); };
  pipeline.executors[0]->set_policy(make_list_policy({cell("0F0"), cell("0B0"), cell("0F1"), cell("0B1")}));
  pipeline.executors[1]->set_policy(make_list_policy({cell("1F0"), cell("1F1"), cell("1B0"), cell("1B1")}));
  pipeline.begin_segment(2);
  try {
    run_together_shuffled(pipeline.all(), 1);
    FAIL() << "finished";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("deadlock"));
    EXPECT_THAT(error.what(), testing::HasSubstr("stage 0 of 2: forwards 1, backwards 0"));
    EXPECT_THAT(error.what(), testing::HasSubstr("last actions: 1F0"));
  }
}

TEST(Executor, MisuseIsRefused) {
  ToyPipeline pipeline(options("paci", 2, 2));
  pipeline.begin_segment(4);
  EXPECT_THROW(pipeline.begin_segment(8), RunError);
  EXPECT_THROW(pipeline.executors[0]->start_at(0, 0), RunError);
  run_together(pipeline.all());
  EXPECT_TRUE(pipeline.executors[0]->finished());
  EXPECT_FALSE(pipeline.executors[0]->advance());
  EXPECT_THROW(pipeline.begin_segment(2), RunError);
  EXPECT_THROW(Executor(0, 2, 1, *pipeline.stages[0], {}, [] { return 0.0; }), RunError);
  EXPECT_THROW(Executor(0, 1, 0, *pipeline.stages[0], {}, [] { return 0.0; }), RunError);
}

}  // namespace
}  // namespace minipipe::schedules
