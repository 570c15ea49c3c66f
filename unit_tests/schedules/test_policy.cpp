#include <gtest/gtest.h>

#include "schedules/error.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::schedules {
namespace {

ScheduleOptions options(const std::string& name, int stages, std::int64_t window) {
  ScheduleOptions result;
  result.name = name;
  result.stages = stages;
  result.window = window;
  return result;
}

StageState state(int stage, int stages, std::int64_t forwards, std::int64_t backwards, std::int64_t updates, std::int64_t end) {
  StageState result;
  result.stage = stage;
  result.stages = stages;
  result.forwards = forwards;
  result.backwards = result.weights = backwards;
  result.updates = updates;
  result.segment_end = end;
  result.input_ready = result.gradient_ready = true;
  return result;
}

TEST(Options, OutOfRangeIsRefused) {
  EXPECT_THROW(make_policy(options("zigzag", 2, 2), 0), InputError);
  EXPECT_THROW(make_policy(options("paci", 0, 2), 0), InputError);
  EXPECT_THROW(make_policy(options("1f1b", 2, 0), 0), InputError);
  EXPECT_THROW(make_policy(options("1f1b", 2, 2), 2), InputError);
  EXPECT_THROW(make_policy(options("1f1b", 2, 2), -1), InputError);
  ScheduleOptions paci = options("paci", 2, 2);
  paci.extra_in_flight = -1;
  EXPECT_THROW(make_policy(paci, 0), InputError);
  paci.extra_in_flight = 0;
  paci.synchronous_updates = -1;
  EXPECT_THROW(make_policy(paci, 0), InputError);
  for (const std::string& name : schedule_names()) {
    if (name == "zb-v" || name == "plan") continue;  // two stages per rank; needs a file
    EXPECT_NE(make_policy(options(name, 3, 3), 1), nullptr) << name;
  }
}

TEST(Limits, SlotsAndGaps) {
  EXPECT_EQ(activation_slots(options("gpipe", 8, 5), 0), 5);
  EXPECT_EQ(activation_slots(options("1f1b", 8, 5), 0), 5);
  EXPECT_EQ(activation_slots(options("1f1b", 8, 16), 2), 6);
  EXPECT_EQ(activation_slots(options("paci", 8, 4), 0), 8);
  EXPECT_EQ(version_gap_bound(options("1f1b", 8, 4), 0), 0);
  // The examples of the paper: the ceiling, not the floor.
  EXPECT_EQ(version_gap_bound(options("paci", 8, 4), 0), 2);
  EXPECT_EQ(version_gap_bound(options("paci", 8, 8), 0), 1);
  EXPECT_EQ(version_gap_bound(options("paci", 32, 96), 0), 1);
  EXPECT_EQ(version_gap_bound(options("paci", 8, 4), 7), 0);
  EXPECT_DOUBLE_EQ(version_gap_mean(options("paci", 8, 4), 0), 1.75);
  ScheduleOptions extra = options("paci", 8, 8);
  extra.extra_in_flight = 2;
  EXPECT_EQ(version_gap_bound(extra, 0), 2);
  EXPECT_EQ(activation_slots(extra, 6), 4);
  EXPECT_EQ(activation_slots(extra, 7), 1);
  EXPECT_EQ(version_gap_bound(extra, 7), 0);
}

TEST(Gpipe, ForwardsThenBackwardsThenUpdate) {
  const auto policy = make_policy(options("gpipe", 2, 3), 0);
  EXPECT_EQ(policy->next(state(0, 2, 2, 0, 0, 6)), Kind::forward);
  EXPECT_EQ(policy->next(state(0, 2, 3, 0, 0, 6)), Kind::backward);
  EXPECT_EQ(policy->next(state(0, 2, 3, 3, 0, 6)), Kind::update);
  EXPECT_EQ(policy->next(state(0, 2, 3, 3, 1, 6)), Kind::forward);
}

TEST(OneForwardOneBackward, WaitsForTheActionWhoseTurnItIs) {
  const auto policy = make_policy(options("1f1b", 3, 4), 0);
  StageState now = state(0, 3, 2, 0, 0, 8);
  now.input_ready = false;  // a gradient is there, but it is the forward's turn
  EXPECT_EQ(policy->next(now), std::nullopt);
  EXPECT_EQ(policy->next(state(0, 3, 3, 0, 0, 8)), Kind::backward);
  now = state(0, 3, 3, 0, 0, 8);
  now.gradient_ready = false;
  EXPECT_EQ(policy->next(now), std::nullopt);
  EXPECT_EQ(policy->next(state(0, 3, 4, 2, 0, 8)), Kind::backward);  // no forward of the next step
}

TEST(Paci, AdmitsForwardsBeyondTheWindow) {
  const auto policy = make_policy(options("paci", 3, 4), 0);
  EXPECT_EQ(policy->next(state(0, 3, 4, 3, 0, 8)), Kind::forward);
  EXPECT_EQ(policy->next(state(0, 3, 5, 4, 0, 8)), Kind::update);  // as soon as it is due
  EXPECT_EQ(policy->next(state(0, 3, 8, 6, 1, 8)), Kind::backward);
}

TEST(Paci, AlternateTakesTurnsAndBackwardFirstDoesNot) {
  ScheduleOptions paci = options("paci", 4, 100);
  auto policy = make_policy(paci, 0);
  EXPECT_EQ(policy->next(state(0, 4, 2, 0, 0, 100)), Kind::forward);
  EXPECT_EQ(policy->next(state(0, 4, 3, 0, 0, 100)), Kind::backward);
  EXPECT_EQ(policy->next(state(0, 4, 3, 1, 0, 100)), Kind::forward);
  EXPECT_EQ(policy->next(state(0, 4, 4, 1, 0, 100)), Kind::backward);
  paci.ready = Ready::backward_first;
  policy = make_policy(paci, 0);
  EXPECT_EQ(policy->next(state(0, 4, 3, 0, 0, 100)), Kind::backward);
  EXPECT_EQ(policy->next(state(0, 4, 3, 1, 0, 100)), Kind::backward);
  StageState now = state(0, 4, 3, 2, 0, 100);
  now.gradient_ready = false;
  EXPECT_EQ(policy->next(now), Kind::forward);
}

TEST(Policies, ReadTheSegmentEndEachTime) {
  for (const char* name : {"1f1b", "paci"}) {
    const auto policy = make_policy(options(name, 3, 2), 0);
    StageState now = state(0, 3, 2, 2, 1, 8);
    now.input_ready = now.gradient_ready = false;
    EXPECT_EQ(policy->next(now), std::nullopt) << name;
    EXPECT_FALSE(policy->finished(now)) << name;
    now.segment_end = 2;
    now.input_ready = true;
    EXPECT_EQ(policy->next(now), std::nullopt) << name;
    EXPECT_TRUE(policy->finished(now)) << name;
    now.updates = 0;
    EXPECT_FALSE(policy->finished(now)) << name;
  }
}

TEST(ForwardOnly, NoBackwards) {
  const auto policy = make_forward_only_policy();
  EXPECT_EQ(policy->next(state(0, 2, 3, 0, 0, 4)), Kind::forward);
  EXPECT_EQ(policy->next(state(0, 2, 4, 0, 0, 4)), std::nullopt);
  EXPECT_TRUE(policy->finished(state(0, 2, 4, 0, 0, 4)));
  EXPECT_FALSE(policy->keeps_activations());
}

TEST(ListPolicy, SkipsMessagesAndStopsAtTheSegmentEnd) {
  const auto policy = make_list_policy({{Kind::receive_activation, 0, 0},
                                        {Kind::forward, 0, 0},
                                        {Kind::send_activation, 0, 0},
                                        {Kind::backward_input, 0, 0},
                                        {Kind::backward_weight, 0, 0},
                                        {Kind::update, 0, 0},
                                        {Kind::drain, 0, 1},
                                        {Kind::forward, 0, 1}});
  StageState now = state(0, 1, 0, 0, 0, 1);
  EXPECT_EQ(policy->next(now), Kind::forward);
  now.forwards = 1;
  now.gradient_ready = false;
  EXPECT_EQ(policy->next(now), std::nullopt);
  now.gradient_ready = true;
  EXPECT_EQ(policy->next(now), Kind::backward_input);
  now.backwards = 1;
  EXPECT_EQ(policy->next(now), Kind::backward_weight);
  now.weights = 1;
  EXPECT_FALSE(policy->finished(now));
  EXPECT_EQ(policy->next(now), Kind::update);
  now.updates = 1;
  EXPECT_EQ(policy->next(now), std::nullopt);
  EXPECT_TRUE(policy->finished(now));
  now.segment_end = 2;
  EXPECT_FALSE(policy->finished(now));
  EXPECT_EQ(policy->next(now), Kind::forward);
  EXPECT_TRUE(policy->finished(now));  // exhausted
}

TEST(ListPolicy, RefusesDisorder) {
  const StageState now = state(0, 1, 2, 1, 0, 8);
  for (const Action& action : {Action{Kind::forward, 0, 3}, Action{Kind::backward, 0, 0}, Action{Kind::backward_weight, 0, 1},
                               Action{Kind::update, 0, 1}, Action{Kind::forward, 1, 2}}) {
    EXPECT_THROW(make_list_policy({action})->next(now), RunError) << to_text(action);
  }
}

}  // namespace
}  // namespace minipipe::schedules
