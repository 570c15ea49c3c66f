#pragma once

#include <chrono>

namespace minipipe::core {

// How long messages of one kind were under way, and the part of it in which this replica had nothing to do but wait.
struct ExchangeSeconds {
  double total = 0;
  double exposed = 0;
};

// Adds up the time between begin and end; further begins and ends in between count nothing.
class Stopwatch {
 public:
  void begin() {
    if (!running_) {
      running_ = true;
      since_ = Clock::now();
    }
  }
  void end(double& seconds) {
    if (running_) {
      running_ = false;
      seconds += std::chrono::duration<double>(Clock::now() - since_).count();
    }
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool running_ = false;
  Clock::time_point since_;
};

}  // namespace minipipe::core
