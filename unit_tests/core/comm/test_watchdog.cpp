#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "core/comm/abort_job.hpp"
#include "core/comm/watchdog.hpp"

namespace minipipe::core {
namespace {

using std::chrono::milliseconds;

TEST(Watchdog, expires_once_and_prints_the_description) {
  std::promise<void> expired;
  auto future = expired.get_future();
  ::testing::internal::CaptureStderr();
  {
    Watchdog dog(
        0.02, [] { return std::string("rank 3, last action 2F7"); }, [&] { expired.set_value(); });
    ASSERT_EQ(future.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    std::this_thread::sleep_for(milliseconds(60));  // a second expiry would set the promise twice and throw
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("rank 3, last action 2F7"), std::string::npos);
}

TEST(Watchdog, does_not_expire_while_beaten) {
  std::atomic<int> expired{0};
  Watchdog dog(
      5.0, [] { return std::string(); }, [&] { ++expired; });
  for (int i = 0; i < 40; ++i) {
    dog.beat();
    std::this_thread::sleep_for(milliseconds(2));
  }
  EXPECT_EQ(expired, 0);
}

TEST(Watchdog, does_not_expire_while_paused_but_afterwards) {
  std::atomic<int> expired{0};
  std::promise<void> promise;
  auto future = promise.get_future();
  ::testing::internal::CaptureStderr();
  {
    Watchdog dog(
        0.5, [] { return std::string(); },
        [&] {
          ++expired;
          promise.set_value();
        });
    {
      const Watchdog::Pause outer(dog);
      { const Watchdog::Pause inner(dog); }
      std::this_thread::sleep_for(milliseconds(800));
      EXPECT_EQ(expired, 0);
    }
    EXPECT_EQ(future.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  }
  ::testing::internal::GetCapturedStderr();
}

TEST(Watchdog, limit_zero_never_expires) {
  std::atomic<int> expired{0};
  {
    Watchdog dog(
        0, [] { return std::string(); }, [&] { ++expired; });
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(expired, 0);
}

TEST(Watchdog, watches_for_another_limit_from_when_it_is_told) {
  std::promise<void> expired;
  auto future = expired.get_future();
  ::testing::internal::CaptureStderr();
  {
    Watchdog dog(
        1000, [] { return std::string("starting"); }, [&] { expired.set_value(); });
    dog.watch_for(0.02, [] { return std::string("training"); });
    ASSERT_EQ(future.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("training"), std::string::npos);
}

TEST(Watchdog, without_a_limit_gets_one_later_and_loses_it_again) {
  std::promise<void> expired;
  auto future = expired.get_future();
  ::testing::internal::CaptureStderr();
  {
    Watchdog dog(
        0, [] { return std::string(); }, [&] { expired.set_value(); });
    dog.watch_for(0.2, [] { return std::string(); });
    dog.watch_for(0, [] { return std::string(); });
    EXPECT_EQ(future.wait_for(milliseconds(500)), std::future_status::timeout);
    dog.watch_for(0.02, [] { return std::string(); });
    EXPECT_EQ(future.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  }
  ::testing::internal::GetCapturedStderr();
}

TEST(AbortJob, ends_the_process_with_the_status) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(abort_job(3), ::testing::ExitedWithCode(3), "");
}

TEST(AbortJob, is_what_an_unattended_watchdog_does) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Watchdog dog(0.02, [] { return std::string("rank 0"); });
        std::this_thread::sleep_for(std::chrono::seconds(10));
      },
      ::testing::ExitedWithCode(3), "nothing moved for .* rank 0");
}

}  // namespace
}  // namespace minipipe::core
