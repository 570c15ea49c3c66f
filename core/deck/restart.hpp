#pragma once

#include <string>
#include <vector>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// What a checkpoint is opened for: to go on training, for the validation loss of its model, or for that and the losses of the
// batch that training would take next.
enum class CheckpointUse { resume, evaluate, evaluate_next_batch };

// Compares the deck stored in a checkpoint with the deck of the run that resumes from it. Only keys that the schema marks as
// changeable may differ; run.steps may only grow; train.microbatches x parallel.data, what an update covers, stays. Throws one
// InputError that lists each other key with its old and new value. Returns a line for each change that is allowed
// ("run.steps: 40 -> 80 (...)"), to be shown to the user. An evaluation compares only what makes the model and, where wanted,
// the place in the training data, and returns no lines.
std::vector<std::string> check_restart(const Deck& stored, const Deck& present, CheckpointUse use = CheckpointUse::resume);

}  // namespace minipipe::core
