#pragma once

#include <cstdint>

#include "schedules/sdp/masks.hpp"

namespace minipipe::core {

// How the replicas of a stage share its parameters, their gradients and the optimizer's moments.
//   ddp:   every replica has all of them; gradients are averaged.
//   zero1: moments are sharded (Rajbhandari et al., arXiv 1910.02054, stage 1); new weights are gathered.
//   fsdp:  all three are sharded (stage 3); the weights of a layer are gathered when a pass needs them.
//   sdp:   a replica holds a part of the units; what is shared is averaged among its holders (arXiv 2507.09029).
enum class ReplicaMode { ddp, zero1, fsdp, sdp };

// What SDP leaves out as a whole: a transformer block; its attention or its MLP branch with the norm before it; a group of the
// MLP's hidden neurons (rows of the up and gate projections and their biases, columns of the down projection). Embedding,
// final norm, head, and with neurons all else of a block, are held by everyone.
enum class SdpUnit { block, sublayer, neuron };

struct ReplicaOptions {
  ReplicaMode mode = ReplicaMode::ddp;
  int replicas = 1;
  int replica = 0;
  std::int64_t bucket_floats = 1 << 20;  // gradients exchanged together; a larger tensor is a bucket of its own
  bool reduce_per_microbatch = true;     // sharded: gradients are reduced after every microbatch, else once per window (and
                                         // then every replica keeps gradients of all it holds)

  // sdp only.
  SdpUnit unit = SdpUnit::block;
  int neuron_groups = 8;            // per block
  bool backward_masking = false;    // full forward; gradients, moments and updates for held units only
  bool sharded_units = false;       // a unit is sharded over its holders (fsdp among them)
  std::int64_t average_period = 0;  // > 0: no exchange of gradients, parameters are averaged every so many updates
  std::int64_t refresh_period = 1;  // backward masking: updates between refreshes of what is not held
  schedules::Masks masks = {};      // of this stage's units: block b of the stage; 2 b attention and 2 b + 1 MLP; or
                                    // b neuron_groups + group, every worker holding equally many groups of each block

  bool sdp() const { return mode == ReplicaMode::sdp; }
  bool sharded() const { return mode == ReplicaMode::fsdp || (sdp() && sharded_units); }
  // Parameters are averaged among holders, and gradients are not exchanged.
  bool averages() const { return sdp() && average_period > 0; }
  bool forward_masking() const { return sdp() && !backward_masking; }

  // Microbatches and sequences are dealt out in turn, so that an update of k replicas covers what one replica with k times the
  // microbatches covers: the number that data and dropout see.
  std::int64_t global_microbatch(std::int64_t microbatch) const { return global_microbatch(microbatch, replica); }
  std::int64_t global_microbatch(std::int64_t microbatch, int of_replica) const { return microbatch * replicas + of_replica; }
};

}  // namespace minipipe::core
