#pragma once

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Stages on each rank: schedule.chunks for interleaved, 2 for zb-v, else 1.
int chunks_of(const Deck& deck);

// Pipeline stages of a run on `ranks` processes: parallel.stages, or chunks for each of the ranks / parallel.data where that
// is 0; under schedule.name = "plan" as many as the plan file has (InputError if it cannot be read).
int stages_of(const Deck& deck, int ranks);

// Ranks of one pipeline of so many stages when each has a process; under schedule.name = "plan" the rows of the plan file
// (InputError if it cannot be read).
int pipeline_ranks(const Deck& deck, int stages);

// Rules between keys, and between keys and the number of ranks. Throws one InputError with a line per broken rule, each with
// the values and the remedy.
void check_rules(const Deck& deck, int ranks);

}  // namespace minipipe::core
