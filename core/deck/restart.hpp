#pragma once

#include <string>
#include <vector>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// What a checkpoint is opened for. An evaluation does not care how many microbatches an update has.
enum class CheckpointUse { resume, evaluate };

// Compares the deck stored in a checkpoint with the deck of the run that resumes from it. Only keys that the schema marks as
// changeable may differ; run.steps may only grow; train.microbatches x parallel.data, what an update covers, stays. Throws one
// InputError that lists each other key with its old and new value. Returns a line for each change that is allowed
// ("run.steps: 40 -> 80 (...)"), to be shown to the user.
std::vector<std::string> check_restart(const Deck& stored, const Deck& present, CheckpointUse use = CheckpointUse::resume);

}  // namespace minipipe::core
