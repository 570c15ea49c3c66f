#pragma once

#include <cstdint>

#include "core/parallel/exchange_plans.hpp"
#include "core/parallel/transfer.hpp"

namespace minipipe::core {

// Sum over the holders of a bucket, by direct messages: every holder sends to the owner of a shard its part of it, and the
// owner adds the holders' values in ascending order, in fp32, and multiplies by the scale. So no bit of the result depends on
// bucket sizes, shard boundaries, arrival, or on whether it then travels to all holders (all-reduce) or stays (reduce-scatter).
// Each replica sends (k-1)/k of the bucket, or twice that, as a ring would.
class BucketReduce : public Transfer {
 public:
  struct Use {
    int tag = 0;  // and the next
    TrafficPurpose scatter = TrafficPurpose::reduce_scatter;
    TrafficPurpose gather = TrafficPurpose::all_gather;
  };

  // source: the holders' values; where the sums go to all, they replace them. target: where the own shard's sum goes.
  BucketReduce(ReducePlan plan, Use use, const Vector<float>& source, const Vector<float>& target);

  const ReducePlan& plan() const { return plan_; }
  // Of the next start.
  void set_scale(double scale) { scale_ = static_cast<float>(scale); }

  void start(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) override;
  bool advance(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) override;
  bool enqueue(int step, StreamLink& stream, Traffic& traffic, const StagingSlot& slot) override;

 private:
  bool used(int holder) const { return holder != plan_.number && plan_.parts[static_cast<std::size_t>(holder)].floats > 0; }
  bool sums() const { return plan_.parts[static_cast<std::size_t>(plan_.number)].floats > 0; }
  // What needs no message: the scale, if this replica is the only holder.
  void store_alone(const ExecutionSpace& space);
  // Of the own shard, from what has arrived.
  void form_sum(const ExecutionSpace& space, const StagingSlot& slot);
  void send_sums(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot);
  void enqueue_values(StreamLink& stream, Traffic& traffic, const StagingSlot& slot);
  void enqueue_sums(StreamLink& stream, Traffic& traffic, const StagingSlot& slot);
  void unpack_sums(const ExecutionSpace& space, const StagingSlot& slot);

  ReducePlan plan_;
  Use use_;
  Vector<float> source_;
  Vector<float> target_;
  float scale_ = 1;
  bool summed_ = false;
  std::vector<char> returning_;  // by holder: the receive of its sum is posted
};

}  // namespace minipipe::core
