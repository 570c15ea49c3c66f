#include <gtest/gtest.h>

#include <csignal>

#include "core/comm/stop_signal.hpp"

namespace minipipe::core {
namespace {

TEST(StopSignal, keeps_the_first_signal) {
  const StopSignal stop;
  EXPECT_EQ(stop.received(), 0);
  std::raise(SIGTERM);
  EXPECT_EQ(stop.received(), SIGTERM);
  std::raise(SIGUSR1);
  std::raise(SIGINT);
  EXPECT_EQ(stop.received(), SIGTERM);
}

TEST(StopSignal, a_new_object_starts_clean_and_the_old_handlers_come_back) {
  struct sigaction before {};
  sigaction(SIGTERM, nullptr, &before);
  {
    const StopSignal stop;
    EXPECT_EQ(stop.received(), 0);
    std::raise(SIGUSR1);
    EXPECT_EQ(stop.received(), SIGUSR1);
  }
  struct sigaction after {};
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

TEST(StopSignal, a_lost_terminal_stops_unless_nohup_says_otherwise) {
  {
    const StopSignal stop;
    std::raise(SIGHUP);
    EXPECT_EQ(stop.received(), SIGHUP);
  }
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignal stop;
    std::raise(SIGHUP);
    EXPECT_EQ(stop.received(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_IGN);
}

TEST(StopSignal, the_second_of_a_kind_is_survived_and_the_third_is_not) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        _exit(stop.received() == SIGTERM ? 11 : 12);
      },
      ::testing::ExitedWithCode(11), "");
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        std::raise(SIGTERM);
        _exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace minipipe::core
