#pragma once

#include "core/deck/deck.hpp"
#include "core/deck/rule_list.hpp"

namespace minipipe::core {

// Rules on model.pattern and on the keys of the layers that it has; check_rules calls this.
void check_hybrid(Rules& rules, const Deck& deck);

}  // namespace minipipe::core
