#include "core/emulate/precise_sleep.hpp"

#include <time.h>

#include <cerrno>
#include <cmath>
#include <cstdint>

namespace minipipe::core {

namespace {

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t spin_ns = 50'000;

std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

}  // namespace

void precise_sleep(double seconds) {
  if (!(seconds > 0)) {
    return;
  }
  const std::int64_t deadline = now_ns() + std::llround(seconds * 1e9);
  // An absolute time: an interrupted sleep goes on to the same end.
  const std::int64_t wake = deadline - spin_ns;
  const timespec until{static_cast<time_t>(wake / second_ns), static_cast<long>(wake % second_ns)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
  }
  while (now_ns() < deadline) {
  }
}

}  // namespace minipipe::core
