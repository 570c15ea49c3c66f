#include <gtest/gtest.h>
#include <mpi.h>

#include "core/train/stop_rule.hpp"
#include "unit_tests/core/train/decks.hpp"

namespace minipipe::core {
namespace {

class StopRuleTest : public ::testing::Test {
 protected:
  // The end decided at `forwards` of a segment that began at microbatch 8 and 10 s ago, after a time limit has passed.
  std::optional<std::int64_t> decided(const Deck& deck, bool drains_anyway, std::int64_t forwards, std::int64_t segment_end) {
    Control control(MPI_COMM_WORLD);
    StopSignal signal;
    double now = 0;
    rule_ = std::make_unique<StopRule>(
        deck, MPI_COMM_WORLD, control, signal, [&now] { return now; }, 3);
    control.begin_segment(1);
    rule_->begin_segment(drains_anyway, 8);
    now = 10;
    schedules::StageState state;
    state.forwards = forwards;
    state.segment_end = segment_end;
    for (int i = 0; i < 100; ++i) {
      if (const auto end = rule_->poll(state)) return end;
    }
    return std::nullopt;
  }

  std::unique_ptr<StopRule> rule_;
};

TEST_F(StopRuleTest, NothingHappensWithoutARequest) {
  EXPECT_FALSE(decided(tests::small_deck(), true, 10, 48));
  EXPECT_FALSE(rule_->stopping());
}

TEST_F(StopRuleTest, AFlushScheduleEndsWithTheRunningUpdate) {
  EXPECT_EQ(decided(tests::small_deck({"run.time_limit=1"}), true, 18, 48), 20);
  EXPECT_TRUE(rule_->stopping());
  EXPECT_FALSE(rule_->cut());
}

TEST_F(StopRuleTest, AnAsynchronousScheduleGoesOnToANearDrain) {
  // 10 microbatches in 10 s, 2 to go: within grace.
  EXPECT_FALSE(decided(tests::small_deck({"run.time_limit=1", "run.grace=5"}), false, 18, 20));
  EXPECT_TRUE(rule_->stopping());
  EXPECT_FALSE(rule_->cut());
}

TEST_F(StopRuleTest, AnAsynchronousScheduleIsCutShortOfAFarDrain) {
  EXPECT_EQ(decided(tests::small_deck({"run.time_limit=1", "run.grace=5"}), false, 18, 48), 20);
  EXPECT_TRUE(rule_->cut());
}

TEST_F(StopRuleTest, WithReplicasASegmentEndsWhereTheyMayGo) {
  // Updates of 4: two ahead of the one that this replica has begun.
  const auto data = [](std::vector<std::string> more = {}) {
    more.insert(more.end(), {"run.time_limit=1", "run.grace=0", "parallel.data=2"});
    return tests::small_deck(more);
  };
  EXPECT_EQ(decided(data(), true, 20, 480), 28);
  EXPECT_EQ(decided(data(), true, 18, 480), 24);
  EXPECT_EQ(rule_->admitted(), 24);
  // Beyond the deck's end nothing has to be announced.
  EXPECT_FALSE(decided(data(), true, 18, 24));
  // Three more can be in flight.
  EXPECT_EQ(decided(data(), false, 19, 480), 28);
  // Between averages replicas do not hold each other.
  const std::vector<std::string> average = {"parallel.mode=sdp", "sdp.sync=parameter", "sdp.period=3"};
  EXPECT_EQ(decided(data(average), true, 18, 480), 36);
  EXPECT_EQ(decided(data(average), true, 28, 480), 48);
}

TEST_F(StopRuleTest, AtLeastOneUpdateIsMade) {
  EXPECT_EQ(decided(tests::small_deck({"run.time_limit=1", "run.grace=0"}), false, 8, 48), 12);
}

}  // namespace
}  // namespace minipipe::core
