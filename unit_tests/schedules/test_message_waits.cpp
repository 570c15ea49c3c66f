#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/exec/run_together.hpp"
#include "schedules/simulate/message_waits.hpp"
#include "unit_tests/schedules/toy_pipeline.hpp"

namespace minipipe::schedules {
namespace {

LoggedAction action(const char* text, double start_s, double end_s, double waited_s = 0) {
  return {*parse_action(text), start_s, end_s, 0, waited_s};
}

TEST(MessageWaits, OnlyTimeAfterTheSendCounts) {
  // Two stages, times in units of 1. 1F0 was waited for from 0 on, but sent at 4 only: 0.5 of 4.5. 1F1 was sent at 8, while
  // stage 1 was at work until 9, and was there at the first look: hidden. 0B0 was sent at 9, with stage 0 idle since 8.
  // 0B1 was sent at 15 while stage 0 computed until 16, which then waited from 16.25 to 17 all the same.
  const Log log{{{action("0F0", 0, 4), action("0F1", 4, 8), action("0B0", 9.25, 16, 1.25), action("0B1", 17, 20, 0.75)},
                 {action("1F0", 4.5, 6, 4.5), action("1B0", 6, 9), action("1F1", 9, 12), action("1B1", 12, 15)}}};
  const auto waits = message_waits(log, one_stage_per_rank(2));
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].received, 2);
  EXPECT_EQ(waits[0].hidden, 0);
  EXPECT_EQ(waits[0].seconds, 0.25 + 0.75);
  EXPECT_EQ(waits[1].received, 2);
  EXPECT_EQ(waits[1].hidden, 1);
  EXPECT_EQ(waits[1].seconds, 0.5);
}

TEST(MessageWaits, InputGradientsSendAndWeightGradientsReadNothing) {
  const Log log{{{action("0F0", 0, 1), action("0I0", 4, 5, 3), action("0W0", 6, 7, 1), action("0U0", 8, 9, 1)},
                 {action("1F0", 1, 2), action("1I0", 2, 3), action("1W0", 3, 6), action("1U0", 6, 7)}}};
  const auto waits = message_waits(log, one_stage_per_rank(2));
  EXPECT_EQ(waits[0].received, 1);
  EXPECT_EQ(waits[0].seconds, 1) << "from the end of 1I0, not of 1W0";
  EXPECT_EQ(waits[1].received, 1);
  EXPECT_EQ(waits[1].hidden, 1);
}

TEST(MessageWaits, StagesOfOneRankExchangeNone) {
  // Stages 0 and 1 on rank 0, stage 2 on rank 1: one message each way.
  const Log log{{{action("0F0", 0, 1), action("1F0", 1, 2), action("1B0", 6, 7, 4), action("0B0", 7, 8)},
                 {action("2F0", 3, 4, 3), action("2B0", 4, 5)}}};
  const auto waits = message_waits(log, blocks(3, 2));
  EXPECT_EQ(waits[0].received, 1);
  EXPECT_EQ(waits[0].seconds, 1);
  EXPECT_EQ(waits[1].received, 1);
  EXPECT_EQ(waits[1].seconds, 1);
  const Log single{{{action("0F0", 0, 1), action("1F0", 2, 3, 1), action("1B0", 3, 4), action("0B0", 4, 5)}}};
  EXPECT_EQ(message_waits(single, blocks(2, 1)).front().received, 0);
}

TEST(MessageWaits, ClocksThatAreOffCountNoMoreThanTheWait) {
  // The sender's clock is 100 ahead, then 100 behind.
  const Log ahead{{{action("0F0", 100, 101)}, {action("1F0", 3, 4, 2)}}};
  EXPECT_EQ(message_waits(ahead, one_stage_per_rank(2))[1].seconds, 0);
  EXPECT_EQ(message_waits(ahead, one_stage_per_rank(2))[1].hidden, 0) << "it was waited for";
  const Log behind{{{action("0F0", -100, -99)}, {action("1F0", 3, 4, 2)}}};
  EXPECT_EQ(message_waits(behind, one_stage_per_rank(2))[1].seconds, 2);
}

TEST(MessageWaits, SumAndEmptyLogs) {
  MessageWaits sum{3, 1, 0.5};
  sum += {4, 2, 0.25};
  EXPECT_EQ(sum.received, 7);
  EXPECT_EQ(sum.hidden, 3);
  EXPECT_EQ(sum.seconds, 0.75);
  EXPECT_EQ(message_waits({{{}, {}}}, one_stage_per_rank(2))[1].received, 0);
  EXPECT_TRUE(message_waits({}, one_stage_per_rank(1)).empty());
}

ScheduleOptions two_stages(const char* name) {
  ScheduleOptions options;
  options.name = name;
  options.stages = 2;
  options.window = 2;
  return options;
}

// The clock moves a second with each look at it: advance() looks at its entry, at the begin and the end of an action, at its
// return; a look in vain takes two.
TEST(MessageWaits, ExecutorLogsHowLongItLookedInVain) {
  ToyPipeline pipeline(two_stages("gpipe"));
  Executor& first = *pipeline.executors[0];
  Executor& second = *pipeline.executors[1];
  pipeline.begin_segment(2);
  const double begin = pipeline.now;
  second.advance();  // in vain, from begin + 1 on
  second.advance();  // in vain
  first.advance();
  const double sent = pipeline.now;
  second.advance();
  first.advance();
  second.advance();  // the second message was there at its first look
  const ActionLog log = second.take_log();
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log[0].start_s, sent + 2);
  EXPECT_EQ(log[0].waited_s, log[0].start_s - (begin + 1));
  EXPECT_EQ(log[1].waited_s, 0);
  EXPECT_EQ(first.take_log()[0].waited_s, 0);
}

TEST(MessageWaits, WorkOfAnotherStageOnTheThreadIsNoWait) {
  ToyPipeline pipeline(two_stages("gpipe"));
  pipeline.begin_segment(2);
  pipeline.executors[1]->advance();  // in vain
  pipeline.executors[0]->advance();
  pipeline.executors[1]->wait_anew();
  pipeline.executors[1]->advance();
  EXPECT_EQ(pipeline.executors[1]->take_log().front().waited_s, 0);
}

TEST(MessageWaits, OfWholeRunsOfToys) {
  for (const char* name : {"gpipe", "1f1b", "zb-h1", "paci"}) {
    ScheduleOptions options = two_stages(name);
    options.stages = 3;
    ToyPipeline pipeline(options);
    for (const std::int64_t end : {4, 8}) {
      pipeline.begin_segment(end);
      auto executors = pipeline.all();
      std::reverse(executors.begin(), executors.end());  // the last stage looks first, and in vain
      run_together(executors);
    }
    const auto waits = message_waits(pipeline.collect_logs(), one_stage_per_rank(3));
    const std::int64_t received[] = {8, 16, 8};  // activations from the stage before, gradients from the one behind
    for (std::size_t s = 0; s < 3; ++s) {
      EXPECT_EQ(waits[s].received, received[s]) << name << ", stage " << s;
      EXPECT_LT(waits[s].hidden, waits[s].received) << name << ", stage " << s << ": the first message is waited for";
      EXPECT_GT(waits[s].seconds, 0) << name << ", stage " << s;
      const StageSeconds& seconds = pipeline.executors[s]->seconds();
      EXPECT_LE(waits[s].seconds, seconds.wait_input + seconds.send) << name << ", stage " << s;
    }
  }
}

}  // namespace
}  // namespace minipipe::schedules
