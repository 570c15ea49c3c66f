#pragma once

#include <cstdint>
#include <vector>

#include "core/model/parameter_list.hpp"
#include "core/model/piece.hpp"
#include "core/model/replication.hpp"

namespace minipipe::core {

// Parameters that the same replicas hold and that travel together. Its elements have one linear order on all replicas.
struct Bucket {
  std::vector<int> holders;  // replicas, ascending
  std::int64_t floats = 0;
  // Layers of the stage (see StageLayerNumbers) it has elements of. Backwards pass layers in descending order: its gradients
  // are complete when they have passed `first_layer`.
  int first_layer = 0;
  int last_layer = 0;

  // Where its elements lie on this replica; empty if it does not hold the bucket and has no such array.
  Pieces parameters;  // in the parameters' array; sharded: in the layer's gathered buffer (held tensors of that layer)
  Pieces gradients;   // in the gradients' array; sharded: in the layer's gradient buffer
  Pieces full;        // in a buffer of the layer's full tensors; buckets of one layer only
  std::int64_t shard_offset = -1;  // of this replica's shard in the sharded arrays; -1: none are, or the bucket is not held

  // The number among the holders, -1: not one.
  int number_of(int replica) const;
  // [begin, end) in linear order of holder number h's shard: as even as multiples of 16 floats allow, rows not respected.
  std::int64_t shard_begin(int holder) const;
  std::int64_t shard_end(int holder) const { return shard_begin(holder + 1); }
};

// A stage's layers, numbered whether or not the stage has an embedding or a head: 0 embedding, 1 + b its block b, 1 + blocks
// head. A tied head's matrix belongs to layer 0.
struct StageLayerNumbers {
  static constexpr int embedding = 0;
  static int block(int b) { return 1 + b; }
  static int head(const StageLayers& layers) { return 1 + layers.blocks; }
  static int count(const StageLayers& layers) { return 2 + layers.blocks; }
};

// Where the parameters of a stage lie on one replica, and how replicas exchange them. Made from options alone; the buckets'
// order, holders and sizes are the same on all replicas.
struct ReplicaLayout {
  ReplicaLayout(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& options);

  ReplicaOptions options;

  // The tensors that this replica's forward uses: with forward masking the held ones only (with neuron groups: narrower ones).
  // Offsets: in the parameters' array; sharded: in the gathered buffer of the entry's layer.
  std::vector<ParameterEntry> forward;
  // Those it trains: with backward masking the held ones only. Offsets: in the gradients' array; sharded: as `forward`.
  std::vector<ParameterEntry> trained;
  // The tensors of the whole stage, offsets in a buffer of the entry's layer (evaluation).
  std::vector<ParameterEntry> full;

  std::int64_t parameter_floats = 0;               // of the array that passes use; sharded: of the shards
  std::int64_t gradient_floats = 0;                // of the gradients' array; sharded and reduced per microbatch: of the shards
  std::int64_t moment_floats = 0;                  // of each moment (AdamW)
  std::vector<std::int64_t> forward_layer_floats;  // by layer: of its gathered buffer
  std::vector<std::int64_t> full_layer_floats;     // by layer

  // For gradients, averages, refreshes and zero1's gather. Sharded: those of `layers`, head first.
  std::vector<Bucket> buckets;
  // By layer, for gathers: one bucket per set of holders and no more than a layer each.
  std::vector<std::vector<Bucket>> layers;
};

}  // namespace minipipe::core
