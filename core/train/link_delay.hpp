#pragma once

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Seconds the emulated link between `stage` and `stage + 1` holds a message back: its latency and the time its bytes take.
inline double link_delay_s(const Deck& deck, int stage) {
  const auto& emulate = deck.emulate;
  const double latency_ms = emulate.link_latencies_ms.empty() ? emulate.link_latency_ms : emulate.link_latencies_ms[stage];
  const double bytes_s =
      emulate.link_mb_per_s > 0 ? static_cast<double>(emulate.message_bytes) / (1e6 * emulate.link_mb_per_s) : 0;
  return 1e-3 * latency_ms + bytes_s;
}

}  // namespace minipipe::core
