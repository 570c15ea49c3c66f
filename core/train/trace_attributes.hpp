#pragma once

#include "core/deck/deck.hpp"
#include "core/io/trace.hpp"
#include "core/train/place.hpp"

namespace minipipe::core {

struct BuildInfo;

// What a trace says about the run that wrote it: format number, resolved deck, version, git hash, Kokkos configuration, ranks,
// host; of a sweep's run also the case and its values (JSON).
TraceAttributes trace_attributes(const Deck& deck, const Place& place, const BuildInfo& build);

}  // namespace minipipe::core
