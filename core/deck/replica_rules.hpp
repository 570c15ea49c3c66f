#pragma once

#include "core/deck/deck.hpp"
#include "core/deck/rule_list.hpp"

namespace minipipe::core {

// Rules on how replicas share a model ([parallel], [sdp]), whatever the number of ranks; check_rules calls both.
void check_replication(Rules& rules, const Deck& deck);

// Those that depend on the ranks and stages of the run, and on masks as far as the deck fixes the blocks of each stage.
void check_replicas_and_stages(Rules& rules, const Deck& deck, int ranks, int stages);

}  // namespace minipipe::core
