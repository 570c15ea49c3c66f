#include "core/parallel/transfer.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

// Memory that MPI may still touch; it is never freed.
struct Left {
  Staging staging;
  std::shared_ptr<const void> other;
};

}  // namespace

void Transfer::exchange(StreamLink& stream, Traffic& traffic, TrafficPurpose purpose) {
  if (group_.empty()) return;
  for (const StreamMessage& message : group_) {
    if (message.direction == StreamMessage::Direction::send) {
      traffic[purpose] += message.floats * static_cast<std::int64_t>(sizeof(float));
    }
  }
  stream.exchange(group_);
}

TransferQueue::TransferQueue(ReplicaLink& link, const ExecutionSpace& space, int slots, std::int64_t slot_floats,
                             std::unique_ptr<StreamLink> stream)
    : link_(link),
      space_(space),
      staging_(slots, slot_floats, stream != nullptr ? ExchangeMemory::kernels : ExchangeMemory::host),
      stream_(std::move(stream)),
      slots_(static_cast<std::size_t>(slots), nullptr) {}

TransferQueue::~TransferQueue() {
  std::vector<MPI_Request> receives;
  std::vector<MPI_Request> sends;
  for (Transfer* transfer : slots_) {
    if (transfer != nullptr) {
      receives.insert(receives.end(), transfer->receives_.begin(), transfer->receives_.end());
      sends.insert(sends.end(), transfer->sends_.begin(), transfer->sends_.end());
    }
  }
  if (!abandon(receives, sends)) {
    [[maybe_unused]] auto* left = new (std::nothrow) Left{staging_, other_memory_};
  }
}

void TransferQueue::push(Transfer& transfer) {
  if (transfer.pending_) {
    throw RunError("an exchange among replicas was begun while its last one is under way");
  }
  transfer.pending_ = true;
  waiting_.push_back(&transfer);
}

bool TransferQueue::complete(int slot) {
  if (stream_ != nullptr) return slot != entering_ && stream_->reached(slot);
  return slots_[static_cast<std::size_t>(slot)]->advance(link_, space_, staging_.slot(slot));
}

// Gives a slot to the next transfer; -1: there is none of the one or of the other.
int TransferQueue::start_next() {
  const auto free = std::find(slots_.begin(), slots_.end(), nullptr);
  if (waiting_.empty() || free == slots_.end()) return -1;
  *free = waiting_.front();
  waiting_.pop_front();
  ++active_;
  return static_cast<int>(free - slots_.begin());
}

void TransferQueue::enqueue_more() {
  while (true) {
    if (entering_ < 0) {
      entering_ = start_next();
      step_ = 0;
      if (entering_ < 0) return;
      stream_->follow(space_);
    }
    if (!stream_->open()) return;
    Transfer& transfer = *slots_[static_cast<std::size_t>(entering_)];
    if (transfer.enqueue(step_++, *stream_, link_.traffic(), staging_.slot(entering_))) {
      stream_->mark(entering_);
      entering_ = -1;
    }
  }
}

bool TransferQueue::poll() {
  bool any = false;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s] != nullptr && complete(static_cast<int>(s))) {
      slots_[s]->pending_ = false;
      slots_[s] = nullptr;
      --active_;
      any = true;
    }
  }
  if (stream_ != nullptr) {
    enqueue_more();
    return any;
  }
  for (int s = start_next(); s >= 0; s = start_next()) {
    slots_[static_cast<std::size_t>(s)]->start(link_, space_, staging_.slot(s));
  }
  return any;
}

}  // namespace minipipe::core
