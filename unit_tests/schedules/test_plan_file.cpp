#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "schedules/check/checker.hpp"
#include "schedules/error.hpp"
#include "schedules/exec/run_together.hpp"
#include "schedules/generate/generate.hpp"
#include "schedules/generate/planned_update.hpp"
#include "schedules/plan/communication.hpp"
#include "schedules/plan/complete.hpp"
#include "schedules/plan/csv.hpp"
#include "schedules/simulate/simulator.hpp"
#include "unit_tests/schedules/toy_pipeline.hpp"

namespace minipipe::schedules {
namespace {

using testing::HasSubstr;

constexpr int kStages = 4;
constexpr std::int64_t kWindow = 4;

ScheduleOptions options(const std::string& name) {
  ScheduleOptions result;
  result.name = name;
  result.stages = kStages;
  result.window = kWindow;
  result.chunks = 2;
  return result;
}

ScheduleOptions write_plan(const std::string& text) {
  ScheduleOptions result = options("plan");
  result.plan_file =
      testing::TempDir() + "minipipe_plan_" + testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
  std::ofstream(result.plan_file) << text;
  return result;
}

std::string text_of(const Plan& plan) {
  std::ostringstream stream;
  write_csv(stream, plan);
  return stream.str();
}

Plan without_updates(Plan plan) {
  for (ActionList& list : plan.ranks) std::erase_if(list, [](const Action& action) { return action.kind == Kind::update; });
  return plan;
}

Plan interleaved() { return generate_plan(options("interleaved"), looped(2, 2), 0, 1); }

// One update as torch.distributed.pipelining would list it: two ranks, one stage each, two microbatches.
TEST(PlanFile, TorchCellsWithCommunicationAndWithout) {
  std::istringstream compute("0F0,0F1,,0B0,,0B1\n,1F0,1I0,1F1,1W0,1B1\n");
  std::istringstream messages(
      "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
      "1UNSHARD,1RECV_F0,1F0,1I0,1SEND_B0,1RECV_F1,1F1,1W0,1B1,1SEND_B1,1RESHARD\n");
  ScheduleOptions schedule;
  schedule.stages = schedule.window = 2;
  const Plan plain = complete_plan(read_csv(compute, "a.csv"), schedule);
  const Plan full = complete_plan(read_csv(messages, "b.csv"), schedule);
  validate_plan(plain, schedule, "a.csv");
  validate_plan(full, schedule, "b.csv");
  EXPECT_EQ(plain.ranks[0].back(), (Action{Kind::update, 0, 0}));
  EXPECT_EQ(full.ranks[0].back(), (Action{Kind::update, 0, 0}));
  EXPECT_EQ(full.ranks[1].end()[-2], (Action{Kind::update, 1, 0}));  // behind its last backward, before the send
  EXPECT_EQ(simulate(full, Costs::equal(2, 1, 1, 1)).makespan, simulate(plain, Costs::equal(2, 1, 1, 1)).makespan);
  std::istringstream overlap("(3F1;0B2)OVERLAP_F_B,0W2\n");
  EXPECT_EQ(read_csv(overlap, "c.csv").ranks[0],
            (ActionList{{Kind::forward, 3, 1}, {Kind::backward, 0, 2}, {Kind::backward_weight, 0, 2}}));
  for (const char* bad : {"(3F1;0Q2)OVERLAP_F_B", "(3F1)OVERLAP_F_B", "0SHARD", "UNSHARDED"}) {
    std::istringstream text(bad);
    EXPECT_THROW(read_csv(text, "d.csv"), InputError) << bad;
  }
  EXPECT_EQ(complete_plan(plain, schedule).ranks, plain.ranks);  // updates are added once
}

TEST(PlanFile, RunsLikeTheScheduleItWasWrittenFrom) {
  const Plan plan = interleaved();
  for (const Plan& written : {plan, without_updates(plan), with_communication(without_updates(plan), looped(2, 2))}) {
    const ScheduleOptions schedule = write_plan(text_of(written));
    EXPECT_EQ(placement_for(schedule), looped(2, 2));
    const Costs costs = Costs::equal(kStages, 1, 1, 1, 0.5);
    EXPECT_EQ(simulate(schedule, costs, 3 * kWindow).busy, simulate(options("interleaved"), costs, 3 * kWindow).busy);
    for (int stage = 0; stage < kStages; ++stage)
      EXPECT_EQ(activation_slots(schedule, stage), activation_slots(options("interleaved"), stage));
    ToyPipeline pipeline(schedule);
    pipeline.begin_segment(3 * kWindow);
    run_together_shuffled(pipeline.all(), 5);
    const CheckReport report = check(pipeline.collect_logs(), schedule, {0, 3 * kWindow, 0});
    EXPECT_TRUE(report.ok()) << report.problems.front();
    EXPECT_EQ(pipeline.weights(),
              serial_toy(kStages, kWindow, 3 * kWindow, [](int, std::int64_t k) { return k / kWindow; }).weights);
  }
}

TEST(PlanFile, MistakesAreNamedWithFileRowAndCell) {
  const auto error = [](const std::function<void(Plan&)>& change) -> std::string {
    Plan plan = interleaved();
    change(plan);
    const ScheduleOptions schedule = write_plan(text_of(plan));
    try {
      planned_update(schedule);
    } catch (const InputError& problem) {
      EXPECT_THAT(problem.what(), HasSubstr(schedule.plan_file));
      return problem.what();
    }
    return "accepted";
  };
  const auto erase = [](ActionList& list, const Action& action) { list.erase(std::find(list.begin(), list.end(), action)); };
  EXPECT_EQ(error([](Plan&) {}), "accepted");
  EXPECT_THAT(error([&](Plan& plan) {
                erase(plan.ranks[1], {Kind::forward, 3, 1});
              }),
              HasSubstr("(3B1): its forward has not come before"));
  EXPECT_THAT(error([&](Plan& plan) {
                erase(plan.ranks[1], {Kind::backward, 3, 3});
              }),
              HasSubstr("(3U0): 3 backwards since the last update, 4 are needed"));
  EXPECT_THAT(error([](Plan& plan) {
                plan.ranks[0].insert(plan.ranks[0].begin() + 1, {Kind::forward, 0, 0});
              }),
              HasSubstr("rank 0, cell 2 (0F0): came already"));
  EXPECT_THAT(error([](Plan& plan) { plan.ranks[0][0].microbatch = 9; }), HasSubstr("row 1, rank 0, cell 1 (0F9)"));
  EXPECT_THAT(error([](Plan& plan) { plan.ranks[0][0].stage = 3; }), HasSubstr("(3F0): the stage is on rank 0 already"));
  EXPECT_THAT(error([](Plan& plan) { plan.ranks[0][0].stage = 6; }), HasSubstr("stage 4 of the plan is on no rank"));
  EXPECT_THAT(error([](Plan& plan) { plan.ranks[0][0].stage = 4; }), HasSubstr("stages 0 to 4, but the run has 4"));
  EXPECT_THAT(error([](Plan& plan) { plan.ranks.emplace_back(); }), HasSubstr("row 3, rank 2: an empty row"));
  EXPECT_THAT(error([](Plan& plan) {
                // Every row alone is sound: rank 0 wants the gradient of stage 1 before it runs the forward of stage 2.
                ActionList& list = plan.ranks[0];
                const auto forward = std::find(list.begin(), list.end(), Action{Kind::forward, 2, 0});
                const auto backward = std::find(list.begin(), list.end(), Action{Kind::backward, 0, 0});
                std::rotate(forward, backward, backward + 1);
              }),
              HasSubstr("(0B0): can never start"));
  ScheduleOptions longer = write_plan(text_of(interleaved()));
  longer.window = 5;
  EXPECT_THROW(planned_update(longer), InputError);
  longer.plan_file = "/nonexistent/plan.csv";
  EXPECT_THROW(planned_update(longer), InputError);
  EXPECT_THROW(placement_for(write_plan(text_of(interleaved())), 3), InputError);  // another number of ranks
}

// Memory planning asks several times for every stage: hundreds of stages would read and prove the file thousands of times.
TEST(PlanFile, IsReadAndProvenOnceAsLongAsItIsTheSame) {
  ScheduleOptions schedule = write_plan("0F0,0F1,0B0,0B1\n");
  schedule.stages = 1;
  schedule.window = 2;
  const auto first = planned_update(schedule);
  EXPECT_EQ(activation_slots(schedule, 0), 2);
  EXPECT_EQ(planned_update(schedule), first);
  // As long as before, and written so soon after that its time may be the same.
  std::ofstream(schedule.plan_file) << "0F0,0B0,0F1,0B1\n";
  EXPECT_NE(planned_update(schedule), first);
  EXPECT_EQ(activation_slots(schedule, 0), 1);
  const auto hours_ago = std::filesystem::last_write_time(schedule.plan_file) - std::chrono::hours(2);
  std::filesystem::last_write_time(schedule.plan_file, hours_ago);
  const auto second = planned_update(schedule);
  EXPECT_EQ(planned_update(schedule), second);
  std::ofstream(schedule.plan_file) << "0F0,0F1,0B0,0B1\n";
  EXPECT_EQ(activation_slots(schedule, 0), 2);
}

TEST(PlanFile, AByteOrderMarkIsNoCell) {
  for (const std::string first : {"", "# an order\n"}) {
    ScheduleOptions schedule = write_plan("\xef\xbb\xbf" + first + "0F0,0B0\n");
    schedule.stages = schedule.window = 1;
    EXPECT_EQ(planned_update(schedule)->plan.ranks.front().size(), 3U);
  }
}

TEST(PlanFile, PlacesAreThoseOfTheFile) {
  const auto error = [](const std::string& first) -> std::string {
    ScheduleOptions schedule = write_plan("# an order\n\n" + first + "\n\n1F0,1B0,1F1,1B1\n");
    schedule.stages = schedule.window = 2;
    try {
      planned_update(schedule);
    } catch (const InputError& problem) {
      return problem.what();
    }
    return "accepted";
  };
  // Comments, blank lines, blank cells and cells without effect count, as in an editor; pairs are one cell.
  EXPECT_EQ(error("0UNSHARD,0F0,,0F1,0B0,0B1"), "accepted");
  EXPECT_THAT(error("0UNSHARD,0F0,,0F1,0B0,0F0,0B1"), HasSubstr("row 3, rank 0, cell 6 (0F0): came already"));
  EXPECT_THAT(error("0F0,(0F1;0B0)OVERLAP_F_B,0B0,0B1"), HasSubstr("row 3, rank 0, cell 3 (0B0): came already"));
  EXPECT_THAT(error("0F0,0F1,0B0,0B1,,1F0"), HasSubstr("row 5, rank 1, cell 1 (1F0): the stage is on rank 0 already"));
  EXPECT_THAT(error("0F0,,0Q1"), HasSubstr("row 3, rank 0, cell 3: '0Q1'"));
  EXPECT_THAT(error(",,"), HasSubstr("row 3, rank 0: an empty row"));
  EXPECT_THAT(error("0F0,0B0,,0F1"), HasSubstr("row 3, rank 0 (stage 0), end of its list"));
  EXPECT_THAT(error("0F0,0F1,0B0,0B1,0U"), HasSubstr("row 3, rank 0, cell 5: '0U' is not an action"));
  // Updates are added behind the last backward: what follows keeps its place.
  EXPECT_THAT(error("0F0,0F1,0B0,0B1,0B2"), HasSubstr("row 3, rank 0, cell 5 (0B2)"));
}

TEST(Plan, PlacesWithoutAFileOrAfterAChange) {
  std::istringstream text("0F0,,0B0\n");
  Plan plan = read_csv(text, "a.csv");
  EXPECT_EQ(place_text(plan, 0, 1), "row 1, rank 0, cell 3");
  EXPECT_EQ(problem_text(plan, 0, 1, "why"), "row 1, rank 0, cell 3 (0B0): why");
  plan.ranks[0].pop_back();
  plan.ranks[0].insert(plan.ranks[0].begin(), 2, {Kind::forward, 0, 7});
  EXPECT_EQ(place_text(plan, 0, 1), "row 1, rank 0, cell 2");  // its own count
  EXPECT_EQ(place_text(plan, 0, 3), "row 1, rank 0");          // behind the last
  plan.sources.clear();
  EXPECT_EQ(place_text(plan, 0, 1), "rank 0, cell 2");
}

TEST(PlanFile, CommunicationThatBlocksIsRefused) {
  Plan plan = with_communication(interleaved(), looped(2, 2));
  ActionList& list = plan.ranks[1];
  const auto receive =
      std::find_if(list.begin(), list.end(), [](const Action& action) { return action.kind == Kind::receive_activation; });
  list.erase(receive);
  EXPECT_THROW(validate_plan(plan, options("plan"), "lost.csv"), InputError);
}

}  // namespace
}  // namespace minipipe::schedules
