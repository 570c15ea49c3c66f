#pragma once

#include <mpi.h>

#include "core/deck/deck.hpp"
#include "core/profile/profile.hpp"

namespace minipipe::core {

// Messages to and fro between neighbouring ranks r and r + 1 through the channels of a run, first all pairs with an even r at
// the same time, then all with an odd r; medians of each pair, mean over the pairs. Collective; the same result on every rank.
// Zeros on one rank.
LinkProfile measure_links(const Deck& deck, MPI_Comm comm);

}  // namespace minipipe::core
