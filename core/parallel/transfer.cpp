#include "core/parallel/transfer.hpp"

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

TransferQueue::TransferQueue(ReplicaLink& link, const ExecutionSpace& space, int slots, std::int64_t slot_floats)
    : link_(link), space_(space), staging_(slots, slot_floats), slots_(static_cast<std::size_t>(slots), nullptr) {}

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

bool TransferQueue::poll() {
  bool any = false;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    if (slots_[s] != nullptr && slots_[s]->advance(link_, space_, staging_.slot(static_cast<int>(s)))) {
      slots_[s]->pending_ = false;
      slots_[s] = nullptr;
      --active_;
      any = true;
    }
  }
  for (std::size_t s = 0; s < slots_.size() && !waiting_.empty(); ++s) {
    if (slots_[s] == nullptr) {
      slots_[s] = waiting_.front();
      waiting_.pop_front();
      ++active_;
      slots_[s]->start(link_, space_, staging_.slot(static_cast<int>(s)));
    }
  }
  return any;
}

}  // namespace minipipe::core
