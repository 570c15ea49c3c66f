// Polls a condition with a limit, so that a lost message is a failed test and not a hang.
#pragma once

#include <chrono>

#include "core/comm/nap.hpp"

namespace minipipe::core {

template <class Condition>
bool wait_until(Condition&& condition, double limit_s = 20) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  Nap nap;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) {
      return false;
    }
    nap.idle();
  }
  return true;
}

}  // namespace minipipe::core
