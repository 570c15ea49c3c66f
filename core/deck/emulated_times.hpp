#pragma once

#include <array>
#include <vector>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// The lists [emulate] stage_*_ms of the deck, which they belong to, with their keys.
struct StageTimeList {
  const char* key;
  const std::vector<double>& times;
};
std::array<StageTimeList, 4> stage_time_lists(const Deck& deck);

// Milliseconds of what an emulated stage sleeps instead of computing. A whole backward takes input and weight together.
struct EmulatedTimes {
  double forward = 0;
  double input = 0;  // gradient of its input
  double weight = 0;
  double update = 0;
};

// Of one stage: the deck's lists [emulate] stage_*_ms where they are given, else the times of all stages with the stage's
// factor. The deck must have passed check_rules for a number of stages above `stage`.
EmulatedTimes emulated_times(const Deck& deck, int stage);

}  // namespace minipipe::core
