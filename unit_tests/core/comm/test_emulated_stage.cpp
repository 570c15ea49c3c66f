#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "core/emulate/emulated_stage.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

TEST(EmulatedStage, sleeps_the_times_given_in_the_order_called) {
  std::vector<double> slept;
  EmulatedStageOptions options;
  options.forward_ms = 6;
  options.input_ms = 7;
  options.weight_ms = 8;
  EmulatedStage stage(options, [&](double seconds) { slept.push_back(seconds); });
  stage.forward(0, 0, 0, 0);
  stage.backward(0, 0, 0, 0);
  stage.backward_input(1, 0, 0, 0);
  stage.backward_weight(1, 0);
  stage.update(0);  // takes no time unless asked to
  ASSERT_EQ(slept.size(), 4u);
  EXPECT_NEAR(slept[0], 0.006, 1e-15);
  EXPECT_NEAR(slept[1], 0.015, 1e-15);
  EXPECT_NEAR(slept[2], 0.007, 1e-15);
  EXPECT_NEAR(slept[3], 0.008, 1e-15);
}

TEST(EmulatedStage, only_the_last_stage_counts_losses) {
  EmulatedStageOptions options;
  for (const bool last : {false, true}) {
    options.last = last;
    EmulatedStage stage(options, [](double) {});
    stage.forward(0, 0, -1, -1);
    stage.forward(1, 0, -1, -1);
    EXPECT_EQ(stage.take_loss_count(), last ? 2 : 0);
    EXPECT_EQ(stage.take_loss_count(), 0);
  }
}

TEST(EmulatedStage, jitter_stays_in_range_and_depends_on_its_key_only) {
  EmulatedStageOptions options;
  options.forward_ms = 10;
  options.jitter = 0.25;
  const auto forwards = [&](const std::vector<std::int64_t>& microbatches) {
    std::vector<double> slept;
    EmulatedStage stage(options, [&](double seconds) { slept.push_back(seconds); });
    for (const auto k : microbatches) {
      stage.forward(k, 0, 0, 0);
    }
    return slept;
  };
  const auto up = forwards({0, 1, 2, 3, 4, 5, 6, 7});
  const auto down = forwards({7, 6, 5, 4, 3, 2, 1, 0});
  double sum = 0;
  for (std::size_t k = 0; k < 8; ++k) {
    EXPECT_EQ(up[k], down[7 - k]);
    EXPECT_GE(up[k], 0.0075);
    EXPECT_LE(up[k], 0.0125);
    sum += up[k];
    for (std::size_t other = 0; other < k; ++other) {
      EXPECT_NE(up[k], up[other]);
    }
  }
  EXPECT_NE(sum, 0.08);
  options.seed = 2;
  EXPECT_NE(forwards({0}), std::vector<double>{up[0]});
  options.seed = 1;
  options.stage = 1;
  EXPECT_NE(forwards({0}), std::vector<double>{up[0]});
}

TEST(EmulatedStage, refuses_impossible_options) {
  EmulatedStageOptions negative;
  negative.forward_ms = -1;
  EXPECT_THROW(EmulatedStage{negative}, InputError);
  EmulatedStageOptions wild;
  wild.jitter = 1;
  EXPECT_THROW(EmulatedStage{wild}, InputError);
}

TEST(PreciseSleep, never_returns_early) {
  using Clock = std::chrono::steady_clock;
  for (const double seconds : {0.0, 1e-5, 2e-4, 3e-3}) {
    const auto begin = Clock::now();
    precise_sleep(seconds);
    EXPECT_GE(std::chrono::duration<double>(Clock::now() - begin).count(), seconds - 1e-9);
  }
}

}  // namespace
}  // namespace minipipe::core
