#pragma once

#include <mpi.h>

#include <filesystem>
#include <optional>
#include <string>

#include "core/deck/deck.hpp"
#include "core/io/checkpoint.hpp"
#include "core/train/pipeline.hpp"

namespace minipipe::core {

// Writes the parameters and moments of all stages; collective. Throws RunError on every rank if any rank fails.
void save_checkpoint(MPI_Comm comm, const std::filesystem::path& file, Pipeline& pipeline, const CheckpointState& state);

// The checkpoint the user wants: "latest" is the newest whole one in `folder`, or nothing if there is none; a broken one that
// was skipped is told in `warning`. `option` is what the user set, for messages ("run.resume ="). InputError if a named file
// does not exist.
std::optional<std::filesystem::path> find_checkpoint(const std::string& wanted, const std::string& option,
                                                     const std::filesystem::path& folder, std::string* warning);

// Proves that the file holds this deck's model and that only keys that may change have changed. Returns its state; appends a
// line for each change to `notes`. Throws InputError.
CheckpointState open_checkpoint(const std::filesystem::path& file, const Deck& deck, std::string* notes);

// Fills the local stages from the file. Not collective.
void load_checkpoint(const std::filesystem::path& file, Pipeline& pipeline);

}  // namespace minipipe::core
