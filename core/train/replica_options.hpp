#pragma once

#include <cstdint>
#include <string>

#include "core/deck/deck.hpp"
#include "core/model/partition.hpp"
#include "core/model/replication.hpp"

namespace minipipe::core {

// What the deck's blocks [parallel] and [sdp] mean to one replica of a stage.
ReplicaOptions replica_options(const Deck& deck, const StageLayers& layers, int replica);

// Updates between averages of parameters, 0: gradients are exchanged.
std::int64_t average_period(const Deck& deck);

// InputError if sdp.coverage does not suit the blocks of a stage.
void check_masks_of_run(const Deck& deck, int stages);

// Of a mask matrix: all rows; of more than 64 replicas only the first and last ones; none.
enum class MaskRows { all, ends, none };

// For people, under parallel.mode = "sdp": of each stage the mask matrix, holder counts, spectral gap and masking error. Empty
// otherwise.
std::string masks_text(const Deck& deck, int stages, MaskRows wanted = MaskRows::ends);

}  // namespace minipipe::core
