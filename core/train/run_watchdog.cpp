#include "core/train/run_watchdog.hpp"

#include <sstream>
#include <string>

namespace minipipe::core {

void watch_run(Watchdog& watchdog, const Deck& deck, int rank) {
  watchdog.watch_for(deck.run.watchdog, [rank, limit = deck.run.watchdog] {
    std::ostringstream text;
    text << "rank " << rank << ": nothing has moved for run.watchdog = " << limit
         << " s: a peer is gone or a schedule waits for ever; ending the job";
    return text.str();
  });
}

}  // namespace minipipe::core
