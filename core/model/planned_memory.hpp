#pragma once

#include "core/model/replica_layout.hpp"
#include "core/model/stage_options.hpp"

namespace minipipe::core {

// Bytes as planned_memory(options), where the layout of the replica's parameters is known: `replica` is that of these options.
StageBytes planned_memory(const KokkosStageOptions& options, const ReplicaLayout& replica);

}  // namespace minipipe::core
