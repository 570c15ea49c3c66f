#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/train/segment_report.hpp"

namespace minipipe::core {
namespace {

using schedules::Kind;
using schedules::LoggedAction;

TraceBasis basis() { return {.window = 2, .tokens_per_update = 100, .time_offset_s = 1000, .learning_rates = {0.5, 0.25}}; }

SegmentReport two_updates() {
  SegmentReport report;
  report.ranks = {{LoggedAction{{Kind::update, 0, 3}, 1, 5, 3}, LoggedAction{{Kind::update, 0, 4}, 6, 9, 4}},
                  {LoggedAction{{Kind::update, 1, 3}, 1, 4, 3}, LoggedAction{{Kind::update, 1, 4}, 6, 10, 4}}};
  report.losses = {{6, 1.0, 50}, {7, 2.0, 50}, {8, 3.0, 50}, {9, 4.0, 50}};
  report.squares = {{3, 0, 9.0}, {3, 1, 16.0}, {4, 0, 1.0}, {4, 1, 3.0}};
  return report;
}

TEST(TraceRows, AverageLossesAndAddSquaresPerUpdate) {
  const auto rows = trace_rows(two_updates(), basis(), 3, 5);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].step, 4);
  EXPECT_EQ(rows[0].tokens, 400);
  EXPECT_DOUBLE_EQ(rows[0].loss, 1.5);
  EXPECT_DOUBLE_EQ(rows[1].loss, 3.5);
  EXPECT_DOUBLE_EQ(rows[0].grad_norm, 5.0);
  EXPECT_DOUBLE_EQ(rows[1].grad_norm, 2.0);
  EXPECT_DOUBLE_EQ(rows[0].lr, 0.5);
  EXPECT_DOUBLE_EQ(rows[1].lr, 0.25);
}

TEST(TraceRows, ALossCountsAsManyTokensAsItHas) {
  auto report = two_updates();
  report.losses = {{6, 1.0, 75}, {7, 2.0, 25}, {8, 3.0, 0}, {9, 4.0, 10}};
  const auto rows = trace_rows(report, basis(), 3, 5);
  EXPECT_DOUBLE_EQ(rows[0].loss, 1.25);
  EXPECT_DOUBLE_EQ(rows[1].loss, 4.0);
}

TEST(TraceRows, AnUpdateIsOverWhenItsLastStageHasMadeIt) {
  const auto rows = trace_rows(two_updates(), basis(), 3, 5);
  EXPECT_DOUBLE_EQ(rows[0].time_s, 1005);
  EXPECT_DOUBLE_EQ(rows[1].time_s, 1010);
}

TEST(TraceRows, WithoutGradientsTheNormIsUnknown) {
  auto report = two_updates();
  report.squares.clear();
  EXPECT_TRUE(std::isnan(trace_rows(report, basis(), 3, 5)[0].grad_norm));
}

TEST(SegmentReport, ByRankSortsEachRanksStagesByTime) {
  SegmentReport report;
  // Two replicas in one process each; of the first one nothing may be left in the second one's log.
  report.ranks = {{LoggedAction{{Kind::forward, 3, 7}, 0, 1, 0}},
                  {LoggedAction{{Kind::forward, 0, 0}, 0, 1, 0}, LoggedAction{{Kind::backward, 0, 0}, 5, 6, 0},
                   LoggedAction{{Kind::forward, 2, 0}, 2, 3, 0}, LoggedAction{{Kind::forward, 1, 0}, 1, 2, 0}}};
  const auto log = report.by_rank({.rank = 0, .ranks = 2, .replicas = 2, .placement = schedules::looped(2, 2)}, 1);
  ASSERT_EQ(log.ranks.size(), 2U);
  ASSERT_EQ(log.ranks[0].size(), 3U);
  EXPECT_EQ(log.ranks[0][1].action.stage, 2);
  EXPECT_EQ(log.ranks[0][2].action.kind, Kind::backward);
  ASSERT_EQ(log.ranks[1].size(), 1U);
  EXPECT_EQ(log.ranks[1][0].action.stage, 1);
}

}  // namespace
}  // namespace minipipe::core
