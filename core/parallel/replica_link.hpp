#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "core/parallel/traffic.hpp"

namespace minipipe::core {

// Nonblocking messages among the replicas of one stage: one communicator whose rank is the replica, tags from `tag_base` on.
// Replica groups of any shape are subsets of it, so no communicator is made per group. Borrows the communicator, which returns
// errors (see Communicator); every error is a RunError.
class ReplicaLink {
 public:
  // Uses the tags [tag_base, tag_base + tags); throws RunError if the MPI library has not that many.
  ReplicaLink(MPI_Comm comm, int tag_base, std::int64_t tags);

  int replica() const { return replica_; }
  int replicas() const { return replicas_; }

  void send(const float* data, std::int64_t floats, int peer, int tag, TrafficPurpose purpose, MPI_Request& request);
  void send(const std::vector<double>& data, int peer, int tag, TrafficPurpose purpose, MPI_Request& request);
  void receive(float* data, std::int64_t floats, int peer, int tag, MPI_Request& request);
  void receive(std::vector<double>& data, int peer, int tag, MPI_Request& request);

  const Traffic& traffic() const { return traffic_; }
  // For messages that go another way.
  Traffic& traffic() { return traffic_; }

 private:
  MPI_Comm comm_;
  int tag_base_;
  int replica_ = 0;
  int replicas_ = 1;
  Traffic traffic_;
};

// True if the request has completed (or there is none). Throws RunError if it has failed.
bool completed(MPI_Request& request);
// The same of all; tests every one of them, so that each moves on.
bool completed(std::vector<MPI_Request>& requests);

// For destructors: cancels what can be, waits a little for the rest, and frees what is still under way then. False if there was
// such: its memory must stay allocated.
bool abandon(std::vector<MPI_Request>& receives, std::vector<MPI_Request>& sends) noexcept;

}  // namespace minipipe::core
