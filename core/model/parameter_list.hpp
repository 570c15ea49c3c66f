#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model_config.hpp"
#include "core/model/partition.hpp"
#include "core/model/replication.hpp"

namespace minipipe::core {

// How a parameter tensor starts.
enum class Start {
  normal,
  normal_residual,  // of what is added to the residual stream
  zeros,
  ones,
  convolution,  // uniform in +-1 / sqrt(K), K = model.conv_width taps
  // Of state spaces, as in the published code of Mamba-2 (arXiv 2405.21060):
  decay_rate,  // the logarithm of a uniform number in [1, 16]
  time_step    // the inverse softplus of a number log-uniform in [1e-3, 1e-1]
};

// A stage's layers, numbered whether or not the stage has an embedding or a head: 0 embedding, 1 + b its block b, 1 + blocks
// head. A tied head's matrix belongs to layer 0.
struct StageLayerNumbers {
  static constexpr int embedding = 0;
  static int block(int b) { return 1 + b; }
  static int head(const StageLayers& layers) { return 1 + layers.blocks; }
  static int count(const StageLayers& layers) { return 2 + layers.blocks; }
};

// The axis of a tensor, seen as a matrix, that runs over the hidden neurons of an MLP.
enum class NeuronAxis { none, rows, columns };

// A rectangle of a tensor that the same replicas hold. A tensor of one dimension is a matrix of one row.
struct Slab {
  int unit = -1;  // SDP's (see ReplicaOptions::masks), the lowest one if neighbours with the same holders are joined; -1: all
                  // replicas hold it
  int row = 0;    // in the tensor as it is here
  int column = 0;
  int rows = 0;
  int columns = 0;
  int full_row = 0;  // in the tensor of the unsplit model
  int full_column = 0;

  friend bool operator==(const Slab&, const Slab&) = default;
};

// One parameter tensor of a stage.
struct ParameterEntry {
  // Hugging Face's name in the family (hybrid: as Nemotron-H); linear weights are [out_features, in_features].
  std::string name;
  std::vector<int> shape;  // row-major
  std::size_t size = 0;    // product of shape
  std::size_t offset = 0;  // floats from the start of the stage's buffers; a multiple of 16, so that alignment does not
                           // depend on the partition
  bool decay = false;      // weight decay applies: matrices only
  int global_index = 0;    // its place in the list of the unsplit model
  Start start = Start::zeros;
  std::vector<int> full_shape;  // of the tensor in the unsplit model; `shape` differs where a replica holds some neurons only
  int layer = 0;                // of the stage, see StageLayerNumbers
  bool mlp = false;             // belongs to a block's MLP branch or the norm before it
  NeuronAxis neurons = NeuronAxis::none;
  std::vector<Slab> slabs;  // tile the tensor, in ascending order
  int hidden_maps = 0;      // for the linear layers inside blocks: the maps of equal shape stacked in it (a fused query, key
                            // and value are three); 0 for everything else, a router and a convolution too
};

// The tensors of a stage in ascending order of `global_index`: token embedding, position table (if there is one), the blocks,
// the final norm, the head's matrix (absent when tied). Inside a block in the order of use, each bias behind its matrix.
std::vector<ParameterEntry> parameter_list(const ModelConfig& model, const StageLayers& layers);

// The tensors of the unsplit model: entry i has global_index i. Offsets are those of a one-stage run.
std::vector<ParameterEntry> parameter_list(const ModelConfig& model);

// The tensors of a stage, with their slabs as the units of these options cut them. Offsets as in the plain list. RunError if
// the masks do not fit the stage.
std::vector<ParameterEntry> split_parameter_list(const ModelConfig& model, const StageLayers& layers,
                                                 const ReplicaOptions& options);

// What replica options.replica holds of them: other tensors are absent, those cut along neurons narrower, with their slabs next
// to each other in the same order. Offsets follow each other again.
std::vector<ParameterEntry> held_parameter_list(const std::vector<ParameterEntry>& split, const ReplicaOptions& options);

// The replicas that hold a unit, ascending; all of them for unit -1.
std::vector<int> holders_of(int unit, const ReplicaOptions& options);

// Sets the offsets anew, each multiple of 16; with `by_layer` each layer starts at 0.
void place(std::vector<ParameterEntry>& entries, bool by_layer);

// Rows and columns of a tensor seen as a matrix; one row if it has one dimension.
struct MatrixShape {
  int rows = 0;
  int columns = 0;
};
inline MatrixShape matrix_shape(const std::vector<int>& shape) {
  return shape.size() > 1 ? MatrixShape{shape[0], shape[1]} : MatrixShape{1, shape.at(0)};
}

// Floats of one buffer that holds these tensors, padding included.
std::size_t buffer_floats(const std::vector<ParameterEntry>& entries);

}  // namespace minipipe::core
