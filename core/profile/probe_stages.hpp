#pragma once

#include <cstddef>
#include <vector>

#include "core/model/model_config.hpp"
#include "core/model/partition.hpp"

namespace minipipe::core {

// A stage that is timed alone to tell the layers apart.
struct ProbeStage {
  StageLayers layers;
  bool large = false;  // of about the size of a run's stages, for which the sums must be right
};

// Stages whose times determine the time of every type of layer of the model, small ones first; the last one is large and ends
// with the head. `longest`: layers of the longest stage of a run. What a layer costs depends on what else is in the caches, so
// the large stages are as large as the real ones.
// Families without a pattern: one block and `longest` of them (at least two), with and without each end.
// Hybrids: runs of consecutive layers of the pattern. Small: one layer of each kind; the first layer with the embedding, the
// last with the head. Large: of the runs of half to all of `longest` layers those whose mixes of kinds differ most (the pivots
// of a QR factorisation of their shares of the cost), and both ends. A tied model is one stage: all have both ends then, and
// embedding and head are not told apart.
std::vector<ProbeStage> probe_stages(const ModelConfig& model, int longest);

// Which of `probes` probes `rank` makes at a turn of a round; in every round it makes each once. What ranks share (memory,
// caches, the clock of the processor, the units of a core) makes some work slower beside other work, and the ranks of a run do
// different things at the same time: so neighbouring ranks make different probes, and in each round beside other ones.
std::size_t probe_of_turn(std::size_t turn, std::size_t probes, int round, int rounds, int rank);

// The model that such stages are parts of: with at least `layers` layers; a pattern goes on with its last letter.
ModelConfig with_layers(ModelConfig model, int layers);

}  // namespace minipipe::core
