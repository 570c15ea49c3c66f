#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/parallel/staging.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// A message in memory of the kernels.
struct StreamMessage {
  enum class Direction { send, receive };
  Direction direction = Direction::send;
  float* data = nullptr;
  std::int64_t floats = 0;
  int peer = 0;  // the replica
};

// Messages among the replicas of a stage that are enqueued like kernels: whole transfers run on an instance of the execution
// space of their own, beside the stage's kernels, and the host only asks whether they are done.
//
// Messages go in groups, which are on their way all at once: a group is complete when each of its messages is, whatever
// order the peers' groups name them in. Messages have no tags: between two replicas the first sent meets the first received. So
// all replicas must enqueue the groups in which they meet in one order; then of all groups that are not complete, the first in
// that order is the next one on all of its replicas, and nobody waits in a circle.
//
// Why messages and not the library's own reductions: sums keep their fixed order, so that results do not depend on the
// transport; groups of holders that overlap need no communicator of their own; and a bucket's pieces and uneven shards need no
// padding. A reduce-scatter and a gather by direct messages send as many bytes as a ring does.
class StreamLink {
 public:
  virtual ~StreamLink() = default;
  // Once, before the first message; collective over the replicas. Waits. Throws RunError.
  virtual void join() = 0;
  // More can be enqueued. A device's stream takes everything at once; one whose kernels run when they are called takes none
  // until its messages are done.
  virtual bool open() { return true; }
  // Where kernels of the transfers are to be enqueued, in order with the messages.
  virtual const ExecutionSpace& space() const = 0;
  // What is enqueued here from now on waits for what is enqueued on `other` now.
  virtual void follow(const ExecutionSpace& other) = 0;
  // Enqueues the messages, each of 1 float at least.
  virtual void exchange(const std::vector<StreamMessage>& group) = 0;
  // Marks the end of what is enqueued for the slot.
  virtual void mark(int slot) = 0;
  // All before the slot's last mark is done. Throws RunError if a message failed.
  virtual bool reached(int slot) = 0;
};

// Two links of one stage's replicas: sums and gathers are each in an order of their own. Null: messages travel by MPI.
struct ReplicaStreams {
  std::unique_ptr<StreamLink> sums;
  std::unique_ptr<StreamLink> gathers;
  ExchangeMemory memory() const { return sums != nullptr ? ExchangeMemory::kernels : ExchangeMemory::host; }
};

// Of the deck's transport ("mpi", "nccl"); null for MPI. `replicas`: borrowed. Throws RunError.
ReplicaStreams make_replica_streams(const std::string& transport, MPI_Comm replicas);

// Which memory messages of that transport are in.
ExchangeMemory exchange_memory(const std::string& transport);

}  // namespace minipipe::core
