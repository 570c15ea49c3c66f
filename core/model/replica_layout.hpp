#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/model/parameter_list.hpp"
#include "core/model/piece.hpp"
#include "core/model/replication.hpp"

namespace minipipe::core {

// A rectangle of a tensor as a run of a bucket's linear order, row by row. One that is a whole tensor of the unsplit model
// takes its padding along, which is zero everywhere: so the tensors of a layer are one run.
struct BucketSlab {
  int entry = 0;  // its number in ReplicaLayout::full
  Slab slab;      // as in that entry
  std::int64_t begin = 0;
  std::int64_t end = 0;  // padding included
};

// A part [begin, end) of a bucket's linear order.
struct LinearRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t floats() const { return end - begin; }
};

// Where part number `part` of `parts` begins: as even as multiples of 16 floats allow.
inline std::int64_t part_begin(std::int64_t floats, std::int64_t part, std::int64_t parts) {
  return std::min(floats, 16 * ((floats + 15) / 16 * part / parts));
}

// Parameters that the same replicas hold and that travel together. Its elements have one linear order on all replicas.
struct Bucket {
  std::vector<int> holders;  // replicas, ascending
  std::int64_t floats = 0;
  // Layers of the stage (see StageLayerNumbers) it has elements of. Backwards pass layers in descending order: its gradients
  // are complete when they have passed `first_layer`.
  int first_layer = 0;
  int last_layer = 0;
  int sender = 0;                 // the holder that sends it to replicas that do not hold it
  std::vector<BucketSlab> slabs;  // in ascending order of tensors; they tile the linear order

  // Where its elements lie on this replica; empty if it does not hold the bucket and has no such array.
  Pieces parameters;  // in the parameters' array; sharded: in the layer's gathered buffer (held tensors of that layer)
  Pieces gradients;   // in the gradients' array; sharded: in the layer's gradient buffer
  Pieces full;        // in a buffer of the layer's full tensors; buckets of one layer only
  std::int64_t shard_offset = -1;  // of this replica's shard in the sharded arrays; -1: none are, or the bucket is not held

  // The number among the holders, -1: not one.
  int number_of(int replica) const;
  // A replica's shard; empty if it is no holder.
  LinearRange shard(int replica) const;
  // [begin, end) in linear order of holder number h's shard: as even as multiples of 16 floats allow, rows not respected.
  std::int64_t shard_begin(int holder) const;
  std::int64_t shard_end(int holder) const { return shard_begin(holder + 1); }
};

// Where the parameters of a stage lie on one replica, and how replicas exchange them. Made from options alone; the buckets'
// order, holders and sizes are the same on all replicas. RunError if the masks do not fit the stage.
struct ReplicaLayout {
  ReplicaLayout(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& options);

  ReplicaOptions options;

  // The tensors that this replica's forward uses: with forward masking the held ones only (with neuron groups: narrower ones).
  // Offsets: in the parameters' array; sharded: in the gathered buffer of the entry's layer.
  std::vector<ParameterEntry> forward;
  // Those it trains: with backward masking the held ones only. Offsets: in the gradients' array; sharded: in the gradient
  // buffer of the entry's layer.
  std::vector<ParameterEntry> trained;
  // The tensors of the whole stage, offsets in a buffer of the entry's layer (evaluation).
  std::vector<ParameterEntry> full;

  std::int64_t parameter_floats = 0;               // of the array that passes use; sharded: of the shards
  std::int64_t gradient_floats = 0;                // of the gradients' array; sharded and reduced per microbatch: of the shards
  std::int64_t moment_floats = 0;                  // of each moment (AdamW)
  std::vector<std::int64_t> forward_layer_floats;  // by layer: of its gathered buffer
  std::vector<std::int64_t> trained_layer_floats;  // by layer: of its gradient buffer
  std::vector<std::int64_t> full_layer_floats;     // by layer
  // By layer: where its gradients start in the gradients' array; sharded and reduced once per window only, else 0.
  std::vector<std::int64_t> gradient_layer_offsets;

  // For gradients, averages, refreshes and zero1's gather. Sharded: those of `layers`, head first.
  std::vector<Bucket> buckets;
  // By layer, for gathers: one bucket per set of holders and no more than a layer each.
  std::vector<std::vector<Bucket>> layers;

  // Makes it the layout of another replica of this stage, as if made anew for it. What replicas have in common is kept, and
  // where tensors lie, too, if both hold the same units. True if they do not: forward, trained and all pieces are others then.
  bool move_to(int replica);

  bool zero1() const { return options.mode == ReplicaMode::zero1; }
  // Gradients are in shards, beside two buffers of a layer.
  bool sharded_gradients() const { return options.sharded() && options.reduce_per_microbatch; }

  // How many were made from options, and how often the tensors of a replica were placed, in this process: work that is to grow
  // with neither the number of replicas nor its square is tested by these.
  struct Work {
    std::int64_t made = 0;
    std::int64_t placed = 0;
  };
  static Work work();

 private:
  void place_tensors();
  void place_shards();

  std::vector<int> units_;  // held; empty without SDP
};

}  // namespace minipipe::core
