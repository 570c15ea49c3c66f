#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/check/checker.hpp"
#include "schedules/error.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::schedules {
namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr std::int64_t kWindow = 4;
constexpr std::int64_t kMicrobatches = 12;

ScheduleOptions options(const std::string& name) {
  ScheduleOptions result;
  result.name = name;
  result.stages = 3;
  result.window = kWindow;
  return result;
}

Plan legal_plan(const std::string& name) { return simulate(options(name), Costs::equal(3, 1, 1, 1), kMicrobatches).log.plan(); }

std::size_t position(const ActionList& list, const char* cell) {
  const auto found = std::find(list.begin(), list.end(), *parse_action(cell));
  EXPECT_NE(found, list.end()) << cell;
  return static_cast<std::size_t>(found - list.begin());
}
void erase(ActionList& list, const char* cell) { list.erase(list.begin() + static_cast<std::ptrdiff_t>(position(list, cell))); }
void insert(ActionList& list, std::size_t at, const char* cell) {
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), *parse_action(cell));
}

std::vector<std::string> problems(const Plan& plan, const std::string& name) {
  return check(plan, options(name), {0, kMicrobatches, 0, {}}).problems;
}

TEST(Checker, AcceptsEverySchedule) {
  for (const std::string& name : schedule_names()) {
    if (name == "zb-v" || name == "plan") continue;  // two stages per rank; needs a file
    EXPECT_EQ(problems(legal_plan(name), name), std::vector<std::string>{}) << name;
  }
}

TEST(Checker, MissingBackward) {
  Plan plan = legal_plan("1f1b");
  erase(plan.ranks[1], "1B11");
  const auto found = problems(plan, "1f1b");
  EXPECT_THAT(found,
              Contains(HasSubstr("rank 1 (stage 1), end of its list: backwards (input gradients) reach 11, expected 12")));
  EXPECT_THAT(found, Contains(HasSubstr("can never start")));
}

TEST(Checker, DoubledForward) {
  Plan plan = legal_plan("gpipe");
  insert(plan.ranks[2], 1, "2F0");
  EXPECT_THAT(problems(plan, "gpipe"), Contains(HasSubstr("rank 2, cell 2 (2F0): came already")));
}

TEST(Checker, BackwardBeforeForward) {
  Plan plan = legal_plan("1f1b");
  std::swap(plan.ranks[2][0], plan.ranks[2][1]);
  const auto found = problems(plan, "1f1b");
  EXPECT_THAT(found, Contains(HasSubstr("rank 2, cell 1 (2B0): its forward has not come before")));
}

TEST(Checker, DescendingOrder) {
  Plan plan = legal_plan("gpipe");
  std::swap(plan.ranks[0][1], plan.ranks[0][2]);
  EXPECT_THAT(problems(plan, "gpipe"), Contains(HasSubstr("rank 0, cell 2 (0F2): is too early")));
}

TEST(Checker, UpdateInTheWrongPlace) {
  Plan early = legal_plan("1f1b");
  const std::size_t at = position(early.ranks[0], "0U0");
  std::swap(early.ranks[0][at - 1], early.ranks[0][at]);
  EXPECT_THAT(problems(early, "1f1b"), Contains(HasSubstr("(0U0): 3 backwards since the last update, 4 are needed")));

  Plan late = legal_plan("paci");
  ActionList& list = late.ranks[1];
  erase(list, "1U0");
  insert(list, position(list, "1B4") + 1, "1U0");
  EXPECT_THAT(problems(late, "paci"), Contains(HasSubstr("(1B4): update 0 should have come before")));

  Plan missing = legal_plan("paci");
  erase(missing.ranks[2], "2U2");
  EXPECT_THAT(problems(missing, "paci"), Contains(HasSubstr("rank 2 (stage 2), end of its list: updates reach 2, expected 3")));
}

TEST(Checker, TooManyInFlight) {
  EXPECT_THAT(problems(legal_plan("gpipe"), "1f1b"),
              Contains(HasSubstr("rank 0, cell 4 (0F3): 4 microbatches in flight, at most 3")));
}

TEST(Checker, VersionGap) {
  EXPECT_THAT(problems(legal_plan("paci"), "1f1b"), Contains(HasSubstr("1 updates since its forward, at most 0")));
}

TEST(Checker, DeadlockAcrossRanks) {
  // Each list is legal alone: stage 0 wants a gradient before it sends the forward that stage 1 waits for.
  ScheduleOptions two = options("gpipe");
  two.stages = 2;
  two.window = 2;
  Plan plan;
  const auto cell = [](const char* text) { return *parse_action(text); };
  plan.ranks = {{cell("0F0"), cell("0B0"), cell("0F1"), cell("0B1"), cell("0U0")},
                {cell("1F0"), cell("1F1"), cell("1B0"), cell("1B1"), cell("1U0")}};
  const auto found = check(plan, two, {0, 2, 0, {}}).problems;
  EXPECT_THAT(found, testing::ElementsAre(HasSubstr("rank 0, cell 2 (0B0): can never start"),
                                          HasSubstr("rank 1, cell 2 (1F1): can never start")));
}

TEST(Checker, MessagesMustMatchOnEachEdge) {
  ScheduleOptions two = options("gpipe");
  two.stages = 2;
  two.window = 2;
  Plan plan;
  const auto cell = [](const char* text) { return *parse_action(text); };
  plan.ranks = {{cell("0F0"), cell("0SEND_F0"), cell("0F1"), cell("0SEND_F1"), cell("0B0"), cell("0B1"), cell("0U0")},
                {cell("1RECV_F0"), cell("1F0"), cell("1RECV_F1"), cell("1F1"), cell("1B0"), cell("1B1"), cell("1U0")}};
  EXPECT_TRUE(check(plan, two, {0, 2, 0, {}}).ok());
  Plan swapped = plan;
  swapped.ranks[0] = {cell("0F0"), cell("0F1"), cell("0SEND_F1"), cell("0SEND_F0"), cell("0B0"), cell("0B1"), cell("0U0")};
  EXPECT_THAT(check(swapped, two, {0, 2, 0, {}}).problems, testing::ElementsAre(HasSubstr("0SEND_F1 meets 1RECV_F0")));
  Plan lost = plan;
  erase(lost.ranks[1], "1RECV_F1");
  EXPECT_THAT(check(lost, two, {0, 2, 0, {}}).problems, testing::ElementsAre(HasSubstr("2 cells SEND_F, but 1 cells RECV_F")));
  Plan early = plan;
  std::swap(early.ranks[0][0], early.ranks[0][1]);
  EXPECT_THAT(check(early, two, {0, 2, 0, {}}).problems, Contains(HasSubstr("(0SEND_F0): its forward comes later")));
}

TEST(Checker, WrongStageDrainAndSplitOrder) {
  Plan plan = legal_plan("1f1b");
  insert(plan.ranks[0], 2, "0D2");
  EXPECT_THAT(problems(plan, "1f1b"), Contains(HasSubstr("rank 0, cell 3 (0D2): microbatches are in flight")));
  plan = legal_plan("1f1b");
  plan.ranks[0][0].stage = 1;
  EXPECT_THAT(problems(plan, "1f1b"), Contains(HasSubstr("rank 0, cell 1 (1F0): this rank runs stage 0")));
  plan = legal_plan("1f1b");
  ActionList& list = plan.ranks[2];
  list[position(list, "2B0")].kind = Kind::backward_weight;
  insert(list, position(list, "2W0") + 1, "2I0");
  EXPECT_THAT(problems(plan, "1f1b"), Contains(HasSubstr("(2W0): its input gradient has not come before")));
}

TEST(Checker, MeasuresEachRank) {
  const CheckReport report = check(legal_plan("paci"), options("paci"), {0, kMicrobatches, 0, {}});
  ASSERT_EQ(report.ranks.size(), 3u);
  EXPECT_EQ(report.ranks[0].peak_in_flight, 3);
  EXPECT_EQ(report.ranks[0].gap_max, 1);
  // By hand: microbatches 4, 5 and 8, 9 had their forward before the update that came before their backward.
  EXPECT_EQ(report.ranks[0].histogram, (std::vector<std::int64_t>{8, 4}));
  EXPECT_DOUBLE_EQ(report.ranks[0].gap_mean, 4.0 / 12);
  EXPECT_EQ(report.ranks[2].gap_max, 0);
}

TEST(Checker, ResumedRunsAndReplicas) {
  Plan plan = legal_plan("paci");
  const std::vector<ActionList> once = plan.ranks;
  for (ActionList& list : plan.ranks) {
    for (Action& action : list) action.microbatch += action.kind == Kind::update ? 10 : 10 * kWindow;
  }
  EXPECT_TRUE(check(plan, options("paci"), {10 * kWindow, kMicrobatches, 10, {}}).ok());
  EXPECT_FALSE(check(plan, options("paci"), {0, kMicrobatches, 0, {}}).ok());

  Plan replicas;
  replicas.ranks = {once[0], once[0], once[1], once[1], once[2], once[2]};
  EXPECT_TRUE(check(replicas, options("paci"), {0, kMicrobatches, 0, {0, 0, 1, 1, 2, 2}}).ok());
  EXPECT_THAT(check(replicas, options("paci"), {0, kMicrobatches, 0, {0, 0, 1, 1, 2}}).problems,
              Contains(HasSubstr("6 rows for 5 ranks")));
  EXPECT_THAT(check(replicas, options("paci"), {0, kMicrobatches, 0, {0, 0, 1, 1, 2, 1}}).problems,
              Contains(HasSubstr("do not make whole pipelines")));
  EXPECT_THROW(check(plan, options("paci"), {0, 5, 0, {}}), InputError);
}

TEST(Checker, LogVersionsAndTimes) {
  Log log = simulate(options("paci"), Costs::equal(3, 1, 1, 1), kMicrobatches).log;
  const CheckRange range{0, kMicrobatches, 0, {}};
  EXPECT_TRUE(check(log, options("paci"), range).ok());
  Log wrong = log;
  wrong.ranks[1].back().version += 1;
  EXPECT_THAT(check(wrong, options("paci"), range).problems,
              Contains(HasSubstr("logged with weight version 4, but 3 updates")));
  wrong = log;
  wrong.ranks[1][3].start_s = wrong.ranks[1][2].end_s - 0.5;
  EXPECT_THAT(check(wrong, options("paci"), range).problems,
              Contains(HasSubstr("starts before the action before it has ended")));
}

}  // namespace
}  // namespace minipipe::schedules
