#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parallel/exchange_layout.hpp"
#include "core/parallel/part.hpp"

namespace minipipe::core {

// Transfers under way at a time in each queue: one whose sum is formed, one whose messages come in, and one that starts and may
// wait for the slowest holder. More would cost memory and no longer hide anything.
inline constexpr int transfers_in_flight = 3;

// A sum over the holders of a bucket, or of a part of it: each holder forms that of its own shard, or of a part of that.
struct ReducePlan {
  std::vector<int> holders;
  int number = 0;                  // of this replica
  std::vector<MessagePart> parts;  // of the source array, by holder
  Pieces result;                   // where the own shard's sum goes in the target array
  bool add = false;                // ... to what is there
  bool all = false;                // the sums then travel to all holders, into `parts`
  std::int64_t received = 0;       // offset in the slot of what the other holders send for the own shard
  std::int64_t slot_floats = 0;
};

// Values that travel from those that have them to those that need them.
struct GatherPlan {
  struct Receive {
    int peer = 0;
    MessagePart part;  // of the target array
  };
  MessagePart source;  // of the source array; sent to each of `peers`
  std::vector<int> peers;
  Pieces local;  // where the source goes in the own target array; empty: it is there
  std::vector<Receive> receives;
  std::int64_t slot_floats = 0;
};

// All transfers of one replica. The lists by bucket and by layer and bucket have an entry for every bucket; an empty one (no
// parts, or neither source nor receives) is not used.
struct ExchangePlans {
  explicit ExchangePlans(const ExchangeLayout& layout);

  // A sharded bucket is a whole layer, so its sum goes in as many parts as there are transfers under way: staging memory is
  // then that of the largest layer, not of several. Others are one part.
  std::vector<std::vector<ReducePlan>> gradients;
  std::vector<ReducePlan> averages;
  std::vector<GatherPlan> weights;                  // zero1's gather, or the refresh of backward masking
  std::vector<std::vector<GatherPlan>> layers;      // sharded
  std::vector<std::vector<GatherPlan>> evaluation;  // sdp, sharded

  // Staging memory of the two queues: sums, gathers.
  std::int64_t reduce_slot_floats = 0;
  std::int64_t gather_slot_floats = 0;
};

// Bytes that the exchange of this replica will allocate.
std::size_t exchange_bytes(const ExchangeLayout& layout);

// The same, where the floats of the slots are known.
std::size_t exchange_bytes(std::int64_t reduce_slot_floats, std::int64_t gather_slot_floats, ExchangeMemory memory);

// InputError for parameters that would be averaged among replicas that hold shards of them.
void require_exchange_sense(const ReplicaOptions& options);

// A number that is the same on all replicas whose layouts fit each other, and hardly ever else.
std::uint64_t fingerprint(const ExchangeLayout& layout);

// Gradients of sharded replicas pass through the layers' gradient buffers; else they lie in the gradients' array.
inline bool reduces_layer_buffers(const ReplicaOptions& options) { return options.sharded() && options.reduce_per_microbatch; }

}  // namespace minipipe::core
