#pragma once

#include <cstdint>
#include <string>

#include "core/deck/deck.hpp"
#include "core/train/place.hpp"

namespace minipipe::core {

// What a run says of itself when it begins: model, grid, partition, tokens of an update, memory, where its results go; and
// where the grid leaves nothing of what the schedule is for. Lines that end with a newline. `fullest_bytes`: allocated by the
// rank that allocates most.
std::string run_header(const Deck& deck, const Place& place, std::int64_t fullest_bytes);

}  // namespace minipipe::core
