#pragma once

#include "core/comm/watchdog.hpp"
#include "core/deck/deck.hpp"

namespace minipipe::core {

// From now on the watchdog watches for run.watchdog and speaks for this rank.
void watch_run(Watchdog& watchdog, const Deck& deck, int rank);

}  // namespace minipipe::core
