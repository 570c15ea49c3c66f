#pragma once

#include <mpi.h>

#include <deque>
#include <memory>
#include <vector>

#include "core/comm/nap.hpp"
#include "core/parallel/replica_link.hpp"
#include "core/parallel/staging.hpp"
#include "core/parallel/stream_link.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// The exchange of one bucket, used again and again: idle, waiting in a queue, or under way.
class Transfer {
 public:
  virtual ~Transfer() = default;
  Transfer() = default;
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // From being queued until it is complete: until then its memory is neither to be read nor to be written.
  bool pending() const { return pending_; }

  // Over MPI; both throw RunError if a message fails. start fences the instance before it hands memory to MPI.
  virtual void start(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) = 0;
  // Moves on what can; true when complete. What it enqueued on the instance may still run.
  virtual bool advance(ReplicaLink& link, const ExecutionSpace& space, const StagingSlot& slot) = 0;

  // Over a stream, step by step from 0: enqueues kernels and then one group of messages at most. True: this was the last step.
  // Throws RunError if the library refuses.
  virtual bool enqueue(int step, StreamLink& stream, Traffic& traffic, const StagingSlot& slot) = 0;

 protected:
  std::vector<MPI_Request> receives_;
  std::vector<MPI_Request> sends_;
  // Enqueues group_, if there is something in it.
  void exchange(StreamLink& stream, Traffic& traffic, TrafficPurpose purpose);
  std::vector<StreamMessage> group_;  // a member, so that its memory is kept

 private:
  friend class TransferQueue;
  bool pending_ = false;
};

// Transfers in one order that is the same on all replicas. They start in that order, as many at a time as there are slots of
// staging memory, and complete in any. So groups of replicas that overlap cannot wait for each other in a circle: of all
// transfers that are not complete everywhere, the first can start and complete. (On a stream they complete in that order, too.)
class TransferQueue {
 public:
  // The transfers pushed later live as long as the queue. `space`: the stage's instance, which fills and uses what travels.
  // With a stream messages go that way and the link only counts them.
  TransferQueue(ReplicaLink& link, const ExecutionSpace& space, int slots, std::int64_t slot_floats,
                std::unique_ptr<StreamLink> stream = nullptr);
  // Waits only a little for messages under way. Memory of those that do not complete is left alone: the staging memory, and
  // `other_memory` (may be null), stay allocated.
  ~TransferQueue();
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  void keep(std::shared_ptr<const void> other_memory) { other_memory_ = std::move(other_memory); }

  // See StreamLink; nothing without a stream.
  void join() {
    if (stream_ != nullptr) stream_->join();
  }

  // Throws RunError if it is pending.
  void push(Transfer& transfer);
  // Starts and moves on what can. True if a transfer has completed.
  bool poll();
  bool empty() const { return waiting_.empty() && active_ == 0; }

  std::size_t bytes() const { return staging_.bytes(); }
  ExchangeMemory memory() const { return stream_ != nullptr ? ExchangeMemory::kernels : ExchangeMemory::host; }

 private:
  bool complete(int slot);
  int start_next();
  void enqueue_more();

  ReplicaLink& link_;
  ExecutionSpace space_;
  Staging staging_;
  std::shared_ptr<const void> other_memory_;
  std::unique_ptr<StreamLink> stream_;  // ends before the memory that it uses
  std::deque<Transfer*> waiting_;
  std::vector<Transfer*> slots_;  // by slot; null: free
  int active_ = 0;
  // With a stream: the slot whose transfer is not all enqueued (-1: none), and its next step.
  int entering_ = -1;
  int step_ = 0;
};

// Polls both queues until the condition holds.
template <class Condition>
void wait_for(const Condition& condition, TransferQueue& a, TransferQueue& b) {
  Nap nap;
  while (!condition()) {
    const bool moved = a.poll();
    if (b.poll() || moved) {
      nap.reset();
    } else {
      nap.idle();
    }
  }
}

}  // namespace minipipe::core
