#pragma once

#include "core/comm/host_share.hpp"
#include "core/deck/deck.hpp"
#include "core/io/trace.hpp"
#include "core/train/place.hpp"

namespace minipipe::core {

struct BuildInfo;

// What a trace says about the run that wrote it: format number, resolved deck, version, git hash, Kokkos configuration, ranks,
// host and how the ranks share it; of a sweep's run also the case and its values (JSON).
TraceAttributes trace_attributes(const Deck& deck, const Place& place, const BuildInfo& build, const HostShare& share);

}  // namespace minipipe::core
