#pragma once

#include <cstdint>

#include "schedules/sdp/masks.hpp"

namespace minipipe::schedules {

// A random assignment with the same number of units per worker and the same multiset of holder counts as `start`, connected if
// `start` is. The same on every platform.
Masks shuffled(const Masks& start, std::uint64_t seed);

}  // namespace minipipe::schedules
