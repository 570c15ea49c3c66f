#pragma once

#include <sched.h>
#include <time.h>

namespace minipipe::core {

// Idle back-off of a polling loop: first polls at full speed, then gives up the core between polls, then sleeps, so that many
// ranks can share few cores. Call idle() after a poll without result and reset() after one with a result.
class Nap {
 public:
  enum class Step { spin, yield, sleep };

  static constexpr int spins = 50;          // polls without result before the core is yielded
  static constexpr int yields_until = 200;  // ... before the thread sleeps
  static constexpr long sleep_ns = 20'000;

  // Returns what it did.
  Step idle() {
    if (polls_ < yields_until) {
      ++polls_;
    }
    if (polls_ < spins) {
      return Step::spin;
    }
    if (polls_ < yields_until) {
      sched_yield();
      return Step::yield;
    }
    const timespec pause{0, sleep_ns};
    nanosleep(&pause, nullptr);
    return Step::sleep;
  }

  void reset() { polls_ = 0; }

 private:
  int polls_ = 0;
};

}  // namespace minipipe::core
