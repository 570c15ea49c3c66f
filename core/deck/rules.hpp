#pragma once

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Pipeline stages of a run on `ranks` processes: parallel.stages, or ranks / parallel.data where that is 0.
int stages_of(const Deck& deck, int ranks);

// Rules between keys, and between keys and the number of ranks. Values that are reserved for later versions are refused here.
// Throws one InputError with a line per broken rule, each with the values and the remedy.
void check_rules(const Deck& deck, int ranks);

}  // namespace minipipe::core
