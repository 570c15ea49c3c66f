#include "core/parallel/bucket_reduce.hpp"

#include <utility>

namespace minipipe::core {

// Requests: receives_[h] of what holder h sends for the own shard, receives_[k + h] of h's sum; sends_ likewise.
BucketReduce::BucketReduce(ReducePlan plan, Use use, const Vector<float>& source, const Vector<float>& target)
    : plan_(std::move(plan)), use_(use), source_(source), target_(target), returning_(plan_.holders.size(), 0) {
  receives_.assign(2 * plan_.holders.size(), MPI_REQUEST_NULL);
  sends_.assign(2 * plan_.holders.size(), MPI_REQUEST_NULL);
}

void BucketReduce::store_alone(const ExecutionSpace& space) {
  if (plan_.add || scale_ != 1) {
    store_scaled(space, plan_.result, target_, plan_.parts.front().pieces, source_, scale_, plan_.add);
  }
}

void BucketReduce::start(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) {
  const int holders = static_cast<int>(plan_.holders.size());
  summed_ = false;
  if (holders == 1) {
    store_alone(space);
    return;
  }
  for (const MessagePart& part : plan_.parts) {
    pack(space, part, source_, slot);
  }
  fence(space, "before messages to replicas, because MPI reads the bucket and writes the slot at once");
  const std::int64_t own = plan_.parts[static_cast<std::size_t>(plan_.number)].floats;
  float* received = slot.messages + plan_.received;
  for (int h = 0; h < holders; ++h) {
    const auto index = static_cast<std::size_t>(h);
    returning_[index] = 0;
    if (h != plan_.number && own > 0) {
      link.receive(received, own, plan_.holders[index], use_.tag, receives_[index]);
      received += own;
    }
  }
  // From the next holder on, so that the first is not asked by all at once.
  for (int step = 1; step < holders; ++step) {
    const int h = (plan_.number + step) % holders;
    const auto index = static_cast<std::size_t>(h);
    const MessagePart& part = plan_.parts[index];
    if (used(h)) {
      link.send(message_memory(part, source_, slot), part.floats, plan_.holders[index], use_.tag, use_.scatter, sends_[index]);
    }
  }
}

void BucketReduce::form_sum(const ExecutionSpace& space, const StagingSlot& slot) {
  const int holders = static_cast<int>(plan_.holders.size());
  const MessagePart& own = plan_.parts[static_cast<std::size_t>(plan_.number)];
  slot.to_device(space, plan_.received, (holders - 1) * own.floats);
  float* sum = slot.device.data() + plan_.received;
  const float* mine = own.in_place() ? source_.data() + own.pieces.front().offset : slot.device.data() + own.staged;
  sum_holders(space, sum, own.floats, holders - 1, mine, plan_.number, scale_);
  store(space, plan_.result, target_, sum, plan_.add);
}

void BucketReduce::send_sums(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) {
  const int holders = static_cast<int>(plan_.holders.size());
  const MessagePart& own = plan_.parts[static_cast<std::size_t>(plan_.number)];
  slot.to_host(space, plan_.received, own.floats);
  fence(space, "before sums go to replicas, because MPI reads them at once");
  for (int step = 1; step < holders; ++step) {
    const int h = (plan_.number + step) % holders;
    link.send(slot.messages + plan_.received, own.floats, plan_.holders[static_cast<std::size_t>(h)], use_.tag + 1, use_.gather,
              sends_[static_cast<std::size_t>(holders + h)]);
  }
}

bool BucketReduce::advance(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) {
  const int holders = static_cast<int>(plan_.holders.size());
  if (holders == 1) {
    return true;
  }
  const bool sent = completed(sends_);
  if (plan_.all) {
    for (int h = 0; h < holders; ++h) {
      const auto index = static_cast<std::size_t>(h);
      // A sum comes to where the values went out from: not before they have.
      if (used(h) && returning_[index] == 0 && sends_[index] == MPI_REQUEST_NULL) {
        link.receive(message_memory(plan_.parts[index], source_, slot), plan_.parts[index].floats, plan_.holders[index],
                     use_.tag + 1, receives_[static_cast<std::size_t>(holders + h)]);
        returning_[index] = 1;
      }
    }
  }
  bool arrived = true;
  for (int h = 0; h < holders; ++h) {
    arrived = completed(receives_[static_cast<std::size_t>(h)]) && arrived;
  }
  if (arrived && !summed_) {
    summed_ = true;
    if (sums()) {
      form_sum(space, slot);
      if (plan_.all) send_sums(link, space, slot);
    }
    return false;
  }
  // When all has been sent, the receives of all sums are posted.
  if (!sent || !summed_ || !completed(receives_)) {
    return false;
  }
  if (plan_.all) {
    unpack_sums(space, slot);
  }
  return true;
}

void BucketReduce::unpack_sums(const ExecutionSpace& space, const StagingSlot& slot) {
  for (int h = 0; h < static_cast<int>(plan_.holders.size()); ++h) {
    if (used(h)) {
      unpack(space, plan_.parts[static_cast<std::size_t>(h)], source_, slot);
    }
  }
}

bool BucketReduce::enqueue(int step, StreamLink& stream, Traffic& traffic, const StagingSlot& slot) {
  if (plan_.holders.size() == 1) {
    store_alone(stream.space());
    return true;
  }
  if (step == 0) {
    enqueue_values(stream, traffic, slot);
    return false;
  }
  if (step == 1) {
    if (sums()) form_sum(stream.space(), slot);
    if (plan_.all) enqueue_sums(stream, traffic, slot);
    return !plan_.all;
  }
  unpack_sums(stream.space(), slot);
  return true;
}

void BucketReduce::enqueue_values(StreamLink& stream, Traffic& traffic, const StagingSlot& slot) {
  using enum StreamMessage::Direction;
  for (const MessagePart& part : plan_.parts) {
    pack(stream.space(), part, source_, slot);
  }
  const std::int64_t own = plan_.parts[static_cast<std::size_t>(plan_.number)].floats;
  float* received = slot.messages + plan_.received;
  group_.clear();
  for (int h = 0; h < static_cast<int>(plan_.holders.size()); ++h) {
    const int peer = plan_.holders[static_cast<std::size_t>(h)];
    const MessagePart& part = plan_.parts[static_cast<std::size_t>(h)];
    if (used(h)) group_.push_back({send, message_memory(part, source_, slot), part.floats, peer});
    if (h != plan_.number && own > 0) {
      group_.push_back({receive, received, own, peer});
      received += own;
    }
  }
  exchange(stream, traffic, use_.scatter);
}

void BucketReduce::enqueue_sums(StreamLink& stream, Traffic& traffic, const StagingSlot& slot) {
  using enum StreamMessage::Direction;
  const std::int64_t own = plan_.parts[static_cast<std::size_t>(plan_.number)].floats;
  group_.clear();
  for (int h = 0; h < static_cast<int>(plan_.holders.size()); ++h) {
    const int peer = plan_.holders[static_cast<std::size_t>(h)];
    const MessagePart& part = plan_.parts[static_cast<std::size_t>(h)];
    if (h != plan_.number && own > 0) group_.push_back({send, slot.messages + plan_.received, own, peer});
    if (used(h)) group_.push_back({receive, message_memory(part, source_, slot), part.floats, peer});
  }
  exchange(stream, traffic, use_.gather);
}

}  // namespace minipipe::core
