#pragma once

#include <mpi.h>

#include <functional>

#include "core/model/batch_source.hpp"
#include "core/profile/profile.hpp"

namespace minipipe::core {

// Measures the deck's layers on all ranks at the same time, each another stage, and the links between neighbouring ranks.
// Takes some tens of seconds for small models, at least six updates of each of some twenty stages for large ones. Needs the
// memory of one stage. `beat` is called when a part is done, for a watchdog.
// Collective; `ranks` is filled on rank 0 only. The caller adds version and git hash.
Profile measure_profile(const Deck& deck, BatchSource& source, MPI_Comm comm, const std::function<void()>& beat);

}  // namespace minipipe::core
