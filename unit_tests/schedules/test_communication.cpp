#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "schedules/check/checker.hpp"
#include "schedules/error.hpp"
#include "schedules/generate/generate.hpp"
#include "schedules/plan/communication.hpp"
#include "schedules/simulate/simulator.hpp"
#include "unit_tests/schedules/random_plan.hpp"

namespace minipipe::schedules {
namespace {

using testing::HasSubstr;

Action cell(const char* text) { return *parse_action(text); }

ActionList compute_of(const ActionList& list) {
  ActionList result;
  std::copy_if(list.begin(), list.end(), std::back_inserter(result),
               [](const Action& action) { return is_compute(action.kind) || action.kind == Kind::update; });
  return result;
}

// Makespan when every rank works through its list in order, blocked by each receive until its message was sent; sends are
// buffered and messages take no time.
double blocking_makespan(const Plan& plan, const PassCosts& costs) {
  std::map<std::tuple<Kind, int, std::int64_t>, double> sent;
  std::vector<double> now(plan.ranks.size(), 0);
  std::vector<std::size_t> next(plan.ranks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
      for (; next[rank] < plan.ranks[rank].size(); ++next[rank], moved = true) {
        const Action& action = plan.ranks[rank][next[rank]];
        const bool down = action.kind == Kind::receive_activation, up = action.kind == Kind::receive_gradient;
        if (action.kind == Kind::send_activation || action.kind == Kind::send_gradient) {
          sent[{action.kind, action.stage, action.microbatch}] = now[rank];
        } else if (down || up) {
          const auto found = sent.find(
              {down ? Kind::send_activation : Kind::send_gradient, action.stage + (down ? -1 : 1), action.microbatch});
          if (found == sent.end()) break;
          now[rank] = std::max(now[rank], found->second);
        } else if (action.kind == Kind::forward) {
          now[rank] += costs.forward;
        } else if (action.kind != Kind::update) {
          if (action.kind != Kind::backward_weight) now[rank] += costs.backward_input;
          if (action.kind != Kind::backward_input) now[rank] += costs.backward_weight;
        }
      }
    }
  }
  for (std::size_t rank = 0; rank < next.size(); ++rank) EXPECT_EQ(next[rank], plan.ranks[rank].size()) << "rank " << rank;
  return *std::max_element(now.begin(), now.end());
}

void expect_sound(const Plan& plan, const Placement& placement, const PassCosts& costs, const std::string& what) {
  const Plan complete = with_communication(plan, placement, costs);
  for (const Sends sends : {Sends::buffered, Sends::rendezvous}) {
    const auto problems = find_deadlocks(complete, placement, sends);
    EXPECT_TRUE(problems.empty()) << what << ": " << problems.front();
  }
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    EXPECT_EQ(compute_of(complete.ranks[rank]), plan.ranks[rank]) << what;
  }
  const auto simulated =
      simulate(plan, Costs::equal(placement.stages(), costs.forward, costs.backward_input, costs.backward_weight));
  EXPECT_NEAR(blocking_makespan(complete, costs), simulated.makespan, 1e-9) << what << ": a receive blocks ready work";
}

TEST(Communication, EveryScheduleIsSoundAndNoReceiveBlocksReadyWork) {
  for (const std::string& name : schedule_names()) {
    if (name == "plan") continue;
    for (const int ranks : {1, 2, 4}) {
      for (const int chunks : {1, 2, 3}) {
        if (name == "zb-v" && chunks != 2) continue;
        ScheduleOptions schedule;
        schedule.name = name;
        schedule.chunks = chunks;
        schedule.stages = ranks * (name.starts_with("zb-") && name != "zb-v" ? 1 : chunks);
        for (const std::int64_t m : {1, 3, 12}) {
          schedule.window = name == "pipedream-2bw" ? std::max<std::int64_t>(m, schedule.stages) : m;
          const Placement placement = placement_for(schedule, ranks);
          const Plan plan = generate_plan(schedule, placement, 0, 2);
          for (const PassCosts costs : {PassCosts{1, 1, 1}, PassCosts{1, 1.5, 0.75}}) {
            expect_sound(
                plan, placement, costs,
                name + " ranks " + std::to_string(ranks) + " chunks " + std::to_string(chunks) + " m=" + std::to_string(m));
          }
        }
      }
    }
  }
}

TEST(Communication, RandomPlansAreSound) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 500; ++trial) {
    const RandomPlan made = random_plan(random);
    expect_sound(made.plan, made.placement, {1, 1.25, 0.5}, "trial " + std::to_string(trial));
  }
}

TEST(Communication, CellsAreCheckedAndNoneLieBetweenStagesOfOneRank) {
  ScheduleOptions schedule;
  schedule.stages = 4;
  schedule.window = 3;
  const Placement placement = blocks(4, 2);
  const Plan plan = with_communication(generate_plan(schedule, placement, 0, 1), placement);
  CheckRange range{0, 3, 0};
  range.placement = placement;
  const CheckReport report = check(plan, schedule, range);
  EXPECT_TRUE(report.ok()) << report.problems.front();
  std::size_t messages = 0;
  for (const ActionList& list : plan.ranks) messages += list.size() - compute_of(list).size();
  EXPECT_EQ(messages, 2u * 2 * 3);  // one edge crosses ranks; two directions, two ends, three microbatches
  EXPECT_EQ(with_communication(plan, placement).ranks, plan.ranks);  // cells that are there are replaced
  EXPECT_THROW(with_communication(plan, one_stage_per_rank(4)), InputError);
}

TEST(Communication, DeadlockOnlyUnderRendezvous) {
  const Placement placement = one_stage_per_rank(2);
  Plan plan;
  plan.ranks = {{cell("0F0"), cell("0SEND_F0"), cell("0F1"), cell("0SEND_F1"), cell("0F2"), cell("0SEND_F2"), cell("0RECV_B0"),
                 cell("0B0")},
                {cell("1RECV_F0"), cell("1F0"), cell("1I0"), cell("1SEND_B0"), cell("1W0"), cell("1RECV_F1"), cell("1F1"),
                 cell("1RECV_F2")}};
  EXPECT_TRUE(find_deadlocks(plan, placement, Sends::buffered).empty());
  EXPECT_THAT(find_deadlocks(plan, placement, Sends::rendezvous),
              testing::ElementsAre(HasSubstr("rank 0, cell 4 (0SEND_F1)"), HasSubstr("rank 1, cell 4 (1SEND_B0)")));
  EXPECT_THROW(prove_no_deadlock(plan, placement), InputError);
  // As neighbours in one group, the send and the receive of rank 1 are started together.
  std::swap(plan.ranks[1][4], plan.ranks[1][5]);
  EXPECT_NO_THROW(prove_no_deadlock(plan, placement));
}

TEST(Communication, LostAndEarlyReceivesAreNamed) {
  const Placement placement = one_stage_per_rank(2);
  Plan plan;
  plan.ranks = {{cell("0F0"), cell("0SEND_F0"), cell("0RECV_B0"), cell("0B0")},
                {cell("1RECV_F0"), cell("1F0"), cell("1B0"), cell("1SEND_B0")}};
  EXPECT_NO_THROW(prove_no_deadlock(plan, placement));
  Plan lost = plan;
  lost.ranks[1].erase(lost.ranks[1].begin());
  EXPECT_THAT(find_deadlocks(lost, placement, Sends::buffered), testing::Contains(HasSubstr("rank 1, cell 1 (1F0)")));
  Plan early = plan;
  std::rotate(early.ranks[0].begin(), early.ranks[0].begin() + 2, early.ranks[0].begin() + 3);
  EXPECT_THAT(find_deadlocks(early, placement, Sends::buffered), testing::Contains(HasSubstr("rank 0, cell 1 (0RECV_B0)")));
}

}  // namespace
}  // namespace minipipe::schedules
