#include "core/train/run_watchdog.hpp"

#include <string>

#include "core/deck/schema.hpp"

namespace minipipe::core {

void watch_run(Watchdog& watchdog, const Deck& deck, int rank) {
  watchdog.watch_for(deck.run.watchdog, [rank, limit = deck.run.watchdog] {
    return "rank " + std::to_string(rank) + ": nothing has moved for run.watchdog = " + to_toml(limit) +
           " s: a peer is gone or a schedule waits for ever; ending the job";
  });
}

}  // namespace minipipe::core
