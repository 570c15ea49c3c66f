#pragma once

#include <vector>

#include "core/model/block_share.hpp"
#include "core/model/replica_layout.hpp"

namespace minipipe::core {

// What the replica of a layout computes and trains, by block of the stage: as block_shares(model, layers, layout.options), from
// the lists that the layout has already.
std::vector<BlockShare> block_shares(const ModelConfig& model, const StageLayers& layers, const ReplicaLayout& layout);

}  // namespace minipipe::core
