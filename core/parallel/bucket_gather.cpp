#include "core/parallel/bucket_gather.hpp"

#include <utility>

namespace minipipe::core {

BucketGather::BucketGather(GatherPlan plan, int tag, TrafficPurpose purpose, const Vector<float>& source,
                           const Vector<float>& target)
    : plan_(std::move(plan)), tag_(tag), purpose_(purpose), source_(source), target_(target) {
  receives_.assign(plan_.receives.size(), MPI_REQUEST_NULL);
  sends_.assign(plan_.peers.size(), MPI_REQUEST_NULL);
}

void BucketGather::prepare(const ExecutionSpace& space, const StagingSlot& slot) {
  pack(space, plan_.source, source_, slot);
  if (!plan_.local.empty()) {
    copy_packed(space, plan_.source, source_, slot, plan_.local, target_);
  }
}

void BucketGather::unpack_all(const ExecutionSpace& space, const StagingSlot& slot) {
  for (const GatherPlan::Receive& receive : plan_.receives) {
    unpack(space, receive.part, target_, slot);
  }
}

void BucketGather::start(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) {
  prepare(space, slot);
  fence(space, "before messages to replicas, because MPI reads weights and writes where kernels may still read");
  for (std::size_t i = 0; i < plan_.receives.size(); ++i) {
    const auto& [peer, part] = plan_.receives[i];
    link.receive(message_memory(part, target_, slot), part.floats, peer, tag_, receives_[i]);
  }
  for (std::size_t i = 0; i < plan_.peers.size(); ++i) {
    link.send(message_memory(plan_.source, source_, slot), plan_.source.floats, plan_.peers[i], tag_, purpose_, sends_[i]);
  }
}

bool BucketGather::advance(ReplicaLink& /*link*/, const ExecutionSpace& space, const StagingSlot& slot) {
  const bool received = completed(receives_);
  if (!completed(sends_) || !received) {
    return false;
  }
  unpack_all(space, slot);
  return true;
}

bool BucketGather::enqueue(int step, StreamLink& stream, Traffic& traffic, const StagingSlot& slot) {
  using enum StreamMessage::Direction;
  if (step == 1) {
    unpack_all(stream.space(), slot);
    return true;
  }
  prepare(stream.space(), slot);
  group_.clear();
  for (const int peer : plan_.peers) {
    if (plan_.source.floats > 0) {
      group_.push_back({send, message_memory(plan_.source, source_, slot), plan_.source.floats, peer});
    }
  }
  for (const auto& [peer, part] : plan_.receives) {
    if (part.floats > 0) group_.push_back({receive, message_memory(part, target_, slot), part.floats, peer});
  }
  exchange(stream, traffic, purpose_);
  return false;
}

}  // namespace minipipe::core
