#pragma once

#include "core/parallel/exchange_plans.hpp"
#include "core/parallel/transfer.hpp"

namespace minipipe::core {

// Values of a bucket from those that have them to those that need them, by direct messages.
class BucketGather : public Transfer {
 public:
  BucketGather(GatherPlan plan, int tag, TrafficPurpose purpose, const Vector<float>& source, const Vector<float>& target);

  // Nothing is to be done on this replica.
  bool empty() const { return plan_.source.floats == 0 && plan_.receives.empty(); }
  // Of the next start.
  void set_target(const Vector<float>& target) { target_ = target; }

  void start(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) override;
  bool advance(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) override;
  bool enqueue(int step, StreamLink& stream, Traffic& traffic, const StagingSlot& slot) override;

 private:
  // The source to where messages read it, and to its own target.
  void prepare(const ExecutionSpace& space, const StagingSlot& slot);
  void unpack_all(const ExecutionSpace& space, const StagingSlot& slot);

  GatherPlan plan_;
  int tag_;
  TrafficPurpose purpose_;
  Vector<float> source_;
  Vector<float> target_;
};

}  // namespace minipipe::core
