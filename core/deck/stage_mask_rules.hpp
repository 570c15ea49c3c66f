#pragma once

#include <vector>

#include "core/deck/deck.hpp"
#include "core/deck/rule_list.hpp"
#include "schedules/sdp/stage_masks.hpp"

namespace minipipe::core {

// The units of a stage with these blocks, as parallel and [sdp] say; workers = parallel.data.
schedules::StageMaskOptions stage_mask_options(const Deck& deck, int first_block, int blocks);

// Adds a line for each number of blocks per stage that sdp.coverage does not suit.
void add_mask_errors(Rules& rules, const Deck& deck, const std::vector<int>& blocks_of_stages);

// The same as an InputError, for the balanced partition, which check_rules does not know. Nothing to check unless
// parallel.mode is "sdp".
void check_masks(const Deck& deck, const std::vector<int>& blocks_of_stages);

}  // namespace minipipe::core
