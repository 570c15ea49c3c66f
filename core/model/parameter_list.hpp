#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model_config.hpp"
#include "core/model/partition.hpp"

namespace minipipe::core {

// How a parameter tensor starts.
enum class Start { normal, normal_residual, zeros, ones };

// One parameter tensor of a stage.
struct ParameterEntry {
  std::string name;        // Hugging Face's name in the family; linear weights are [out_features, in_features]
  std::vector<int> shape;  // row-major
  std::size_t size = 0;    // product of shape
  std::size_t offset = 0;  // floats from the start of the stage's buffers; a multiple of 16, so that alignment does not
                           // depend on the partition
  bool decay = false;      // weight decay applies: matrices only
  int global_index = 0;    // its place in the list of the unsplit model
  Start start = Start::zeros;
  int hidden_maps = 0;  // for the matrices inside blocks: the linear maps of equal shape stacked in it (a fused query, key
                        // and value are three); 0 for everything else
};

// The tensors of a stage in ascending order of `global_index`: token embedding, position table (if there is one), the blocks,
// the final norm, the head's matrix (absent when tied). Inside a block in the order of use, each bias behind its matrix.
std::vector<ParameterEntry> parameter_list(const ModelConfig& model, const StageLayers& layers);

// The tensors of the unsplit model: entry i has global_index i. Offsets are those of a one-stage run.
std::vector<ParameterEntry> parameter_list(const ModelConfig& model);

// Floats of one buffer that holds these tensors, padding included.
std::size_t buffer_floats(const std::vector<ParameterEntry>& entries);

}  // namespace minipipe::core
