#pragma once

#include <mpi.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/deck/deck.hpp"
#include "core/deck/restart.hpp"
#include "core/io/checkpoint.hpp"
#include "core/train/pipeline.hpp"

namespace minipipe::core {

// What checkpoints keep of a stage on one replica. Not owned.
struct StageWeights {
  ParameterStore* parameters = nullptr;
  WeightVersions* versions = nullptr;  // null: no older versions
};

// Those of the local stages; none in an emulated run.
std::vector<StageWeights> stage_weights(Pipeline& pipeline);

// Writes the parameters, moments and weight versions of all stages, each element of the model once, whichever replicas have it.
// Collective over the ranks of all replicas. Throws RunError on every rank if any rank fails.
void save_checkpoint(MPI_Comm comm, const std::filesystem::path& file, const std::vector<StageWeights>& stages,
                     const CheckpointState& state);
inline void save_checkpoint(MPI_Comm comm, const std::filesystem::path& file, Pipeline& pipeline,
                            const CheckpointState& state) {
  save_checkpoint(comm, file, stage_weights(pipeline), state);
}

// The checkpoint the user wants: "latest" is the newest whole one in `folder`, or nothing if there is none; a broken one that
// was skipped is told in `warning`. `option` is what the user set, for messages ("run.resume ="). InputError if a named file
// does not exist, or if there are checkpoints and none is whole: whoever asks to go on must not start anew unasked.
std::optional<std::filesystem::path> find_checkpoint(const std::string& wanted, const std::string& option,
                                                     const std::filesystem::path& folder, std::string* warning);

// Proves that the file holds this deck's model and that only keys that may change have changed. Returns its state; appends a
// line for each change to `notes`. Throws InputError.
CheckpointState open_checkpoint(const std::filesystem::path& file, const Deck& deck, std::string* notes,
                                CheckpointUse use = CheckpointUse::resume);

// Fills local stages from the file with what this replica keeps, on any grid, in any mode and with any masks, whichever wrote
// it. Copies that passes gather are not filled. Not collective.
void load_checkpoint(const std::filesystem::path& file, const std::vector<StageWeights>& stages);
inline void load_checkpoint(const std::filesystem::path& file, Pipeline& pipeline) {
  load_checkpoint(file, stage_weights(pipeline));
}

}  // namespace minipipe::core
