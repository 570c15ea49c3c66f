#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/tune/scaled_profile.hpp"
#include "schedules/error.hpp"
#include "schedules/simulate/steady_step.hpp"

namespace minipipe::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const char* const kProfile = R"({"layers": "AB", "width": 100, "sequence": 10, "communication_ms": 0.5, "message_bytes": 2e6,
 "link_gb_per_s": 4, "exchange_gb_per_s": 2, "exchange_latency_ms": 0.25, "attention_share": {"A": 0.25},
 "forward_ms": {"A": 8, "B": 2, "L": 3}, "backward_ms": {"A": 4, "B": 3, "L": 4}, "weight_ms": {"A": 0, "B": 1, "L": 0},
 "gradient_bytes": {"A": 1e6, "B": 3e6, "L": 4e6}, "activation_bytes": {"A": 5}})";

ProfileFile profile() { return parse_profile(kProfile, "p.json"); }

TEST(ScaledProfile, TheFileItselfIsSizeZero) {
  const ProfileFile file = scaled(profile(), {});
  EXPECT_EQ(file.profile.size(), 2);
  EXPECT_EQ(file.profile.layers[0].forward, 8);
  EXPECT_EQ(file.profile.head.forward, 3);
  EXPECT_EQ(file.profile.link, 0.5 + 2e6 / 4e6);
  EXPECT_EQ(file.growth.attention_share[0], 0.25);
}

TEST(ScaledProfile, TimesGrowWithTheOperations) {
  const ProfileFile file = scaled(profile(), {.layers = 5, .width = 300, .sequence = 20});
  EXPECT_EQ(file.profile.pattern, "ABABA");
  ASSERT_EQ(file.profile.size(), 5);
  // w = 3, t = 2: three quarters grow 18 times, the attention's quarter 12 times.
  EXPECT_EQ(file.profile.layers[4].forward, 8 * (0.75 * 18 + 0.25 * 12));
  EXPECT_EQ(file.profile.layers[1].backward_input, 3 * 18);
  EXPECT_EQ(file.profile.head.forward, 3 * 6);
  EXPECT_EQ(file.profile.layers[0].gradient_bytes, 1e6 * 9);
  EXPECT_EQ(file.profile.head.gradient_bytes, 4e6 * 3);
  EXPECT_EQ(file.profile.layers[0].activation_bytes, 5 * 6);
  EXPECT_EQ(file.profile.link, 0.5 + 6 * 0.5);
  EXPECT_EQ(file.growth.width, 300);
  EXPECT_EQ(file.growth.sequence, 20);
  // In two steps as in one, the attention's share changing on the way.
  const ProfileFile twice = scaled(scaled(profile(), {.width = 300}), {.layers = 5, .sequence = 20});
  EXPECT_DOUBLE_EQ(twice.profile.layers[4].forward, file.profile.layers[4].forward);
}

TEST(ScaledProfile, StagesExchangeTheirGradients) {
  const auto costs = stage_costs(profile(), {1, 1}, 4);
  EXPECT_THAT(costs.forward, ElementsAre(8, 5));
  // Six messages of a quarter: 1 MB and 7 MB over 2 GB/s.
  EXPECT_DOUBLE_EQ(costs.update[0], 6 * (0.25 + 0.25e6 / 2e6));
  EXPECT_DOUBLE_EQ(costs.update[1], 6 * (0.25 + 1.75e6 / 2e6));
  EXPECT_EQ(costs.latency, 1);
  EXPECT_THAT(stage_costs(profile(), {1, 1}, 1).update, ElementsAre(0, 0));
  EXPECT_THROW(stage_costs(profile(), {1, 1}, 0), InputError);
}

// A flush schedule: the step of equal stages is their work, the bubble and the last stage's exchange.
TEST(ScaledProfile, AStepOfReplicas) {
  schedules::ScheduleOptions options;
  options.name = "1f1b";
  options.stages = 4;
  options.window = 6;
  const auto alone = schedules::steady_step(options, schedules::Costs::equal(4, 1, 1, 1));
  EXPECT_EQ(alone.time, 27);
  EXPECT_EQ(alone.pass_share, 18.0 / 27);
  const auto together = schedules::steady_step(options, schedules::Costs::equal(4, 1, 1, 1, 5));
  EXPECT_EQ(together.time, 32);
  EXPECT_EQ(together.pass_share, 18.0 / 32);
  EXPECT_EQ(together.busy_share, 23.0 / 32);
  options.name = "paci";
  EXPECT_EQ(schedules::steady_step(options, schedules::Costs::equal(4, 1, 1, 1)).time, 18);
}

TEST(ScaledProfile, WhatTheFileDoesNotSayIsNamed) {
  ProfileFile file = profile();
  file.growth.width = 0;
  EXPECT_NO_THROW(scaled(file, {.sequence = 20}));
  try {
    scaled(file, {.width = 200});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("profile p.json: does not say the width"));
  }
  EXPECT_THROW(scaled(file, {.sequence = -1}), InputError);
  EXPECT_THROW(scaled(file, {.layers = -1}), InputError);
}

}  // namespace
}  // namespace minipipe::core
