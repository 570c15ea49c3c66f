#pragma once

#include <mpi.h>

#include <string>

#include "app/command.hpp"
#include "core/comm/watchdog.hpp"
#include "core/deck/deck.hpp"
#include "core/deck/sweep.hpp"

namespace minipipe::app {

// Reads the deck on rank 0, resolves it (the case --case says, of a sweep) on every rank and proves that all have the same.
// Collective; throws InputError on all.
core::Deck load_deck(const Command& command, MPI_Comm comm);

// Whether the deck's text, as it is in the file, or an override has the word: for what must be known before anything is parsed.
// Collective. No error if there is no such file.
bool mentions(const Command& command, const std::string& word, MPI_Comm comm);

// The deck with its sweep. Collective as load_deck.
core::SweepDeck load_sweep(const Command& command, MPI_Comm comm);

// The sub-commands. Collective over MPI_COMM_WORLD; each returns the exit status. With a watchdog: from when the deck is known
// it watches for run.watchdog.
int train(const Command& command, core::Watchdog& watchdog);
int check(const Command& command);
int profile(const Command& command, core::Watchdog& watchdog);
int bench(const Command& command);
int simulate(const Command& command);
int simulate_profile(const Command& command);  // simulate --profile
int tune(const Command& command);
int evaluate(const Command& command, core::Watchdog& watchdog);

}  // namespace minipipe::app
