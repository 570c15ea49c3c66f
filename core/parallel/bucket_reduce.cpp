#include "core/parallel/bucket_reduce.hpp"

#include <utility>

namespace minipipe::core {

// Requests: receives_[h] of what holder h sends for the own shard, receives_[k + h] of h's sum; sends_ likewise.
BucketReduce::BucketReduce(ReducePlan plan, Use use, const Vector<float>& source, const Vector<float>& target)
    : plan_(std::move(plan)), use_(use), source_(source), target_(target), returning_(plan_.holders.size(), 0) {
  receives_.assign(2 * plan_.holders.size(), MPI_REQUEST_NULL);
  sends_.assign(2 * plan_.holders.size(), MPI_REQUEST_NULL);
}

void BucketReduce::start(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) {
  const int holders = static_cast<int>(plan_.holders.size());
  summed_ = false;
  if (holders == 1) {
    if (plan_.add || scale_ != 1) {
      store_scaled(space, plan_.result, target_, plan_.parts.front().pieces, source_, scale_, plan_.add);
    }
    return;
  }
  for (const MessagePart& part : plan_.parts) {
    pack(space, part, source_, slot);
  }
  fence(space, "before messages to replicas, because MPI reads the bucket and writes the slot at once");
  const std::int64_t own = plan_.parts[static_cast<std::size_t>(plan_.number)].floats;
  float* received = slot.host.data() + plan_.received;
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

void BucketReduce::form_sum(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) {
  const int holders = static_cast<int>(plan_.holders.size());
  const MessagePart& own = plan_.parts[static_cast<std::size_t>(plan_.number)];
  summed_ = true;
  if (own.floats == 0) {
    return;
  }
  slot.to_device(space, plan_.received, (holders - 1) * own.floats);
  float* sum = slot.device.data() + plan_.received;
  const float* mine = own.in_place() ? source_.data() + own.pieces.front().offset : slot.device.data() + own.staged;
  sum_holders(space, sum, own.floats, holders - 1, mine, plan_.number, scale_);
  store(space, plan_.result, target_, sum, plan_.add);
  if (!plan_.all) {
    return;
  }
  slot.to_host(space, plan_.received, own.floats);
  fence(space, "before sums go to replicas, because MPI reads them at once");
  for (int step = 1; step < holders; ++step) {
    const int h = (plan_.number + step) % holders;
    link.send(slot.host.data() + plan_.received, own.floats, plan_.holders[static_cast<std::size_t>(h)], use_.tag + 1,
              use_.gather, sends_[static_cast<std::size_t>(holders + h)]);
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
    form_sum(link, space, slot);
    return false;
  }
  // When all has been sent, the receives of all sums are posted.
  if (!sent || !summed_ || !completed(receives_)) {
    return false;
  }
  if (plan_.all) {
    for (int h = 0; h < holders; ++h) {
      if (used(h)) {
        unpack(space, plan_.parts[static_cast<std::size_t>(h)], source_, slot);
      }
    }
  }
  return true;
}

}  // namespace minipipe::core
