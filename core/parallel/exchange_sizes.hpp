#pragma once

#include <cstdint>
#include <vector>

#include "core/model/replica_layout.hpp"
#include "core/parallel/staging.hpp"

namespace minipipe::core {

// What the ExchangePlans of a replica come to.
struct ExchangeSizes {
  // Floats of the slots of staging memory, as in ExchangePlans.
  std::int64_t reduce_slot_floats = 0;
  std::int64_t gather_slot_floats = 0;

  // Floats sent to other replicas, whenever it happens: a sum of all gradients and what travels back of it; an average of
  // parameters; new weights or a refresh; by layer a gather for a pass.
  std::int64_t scattered = 0;
  std::int64_t returned = 0;
  std::int64_t averaged = 0;
  std::int64_t weights = 0;
  std::vector<std::int64_t> layers;

  friend bool operator==(const ExchangeSizes&, const ExchangeSizes&) = default;
};

// Those of all replicas of a stage in turn. Plans list every message to every other replica: made for all replicas, they would
// take work that grows with the square of their number. Here a replica's sizes take the time of its buckets; what the messages
// of all holders of a bucket need in staging memory is counted once for all replicas whose tensors lie alike.
class ExchangeSizer {
 public:
  // Of this replica and those to which layout.move_to moves without telling that pieces are others: then make a new one.
  // InputError, as of ExchangePlans, for messages that are too long and for averages of shards.
  ExchangeSizer(const ReplicaLayout& layout, ExchangeMemory memory);

  ExchangeSizes sizes(const ReplicaLayout& layout) const;

 private:
  // Floats that are packed, of the messages of all holders.
  struct Packed {
    std::vector<std::int64_t> gradients;  // by part of the bucket
    std::int64_t averages = 0;
    std::int64_t weights = 0;
    std::int64_t parameters = 0;  // gathers for passes
    std::int64_t full = 0;        // gathers for evaluations
  };

  ExchangeMemory memory_;
  std::vector<Packed> buckets_;
  std::vector<std::vector<Packed>> layers_;
};

}  // namespace minipipe::core
