#include "core/parallel/replica_link.hpp"

#include <string>

#include "core/comm/mpi_error.hpp"
#include "core/comm/requests.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

// A peer that lives answers within this time; one that has failed never does.
constexpr double grace_s = 1.0;

}  // namespace

ReplicaLink::ReplicaLink(MPI_Comm comm, int tag_base, std::int64_t tags) : comm_(comm), tag_base_(tag_base) {
  check(MPI_Comm_rank(comm_, &replica_), "MPI_Comm_rank of the replicas");
  check(MPI_Comm_size(comm_, &replicas_), "MPI_Comm_size of the replicas");
  void* value = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr of MPI_TAG_UB");
  const std::int64_t bound = found != 0 ? *static_cast<int*>(value) : 32767;
  if (tag_base_ + tags - 1 > bound) {
    throw RunError("the exchange among replicas needs " + std::to_string(tag_base_ + tags) +
                   " message tags, this MPI library has " + std::to_string(bound + 1) + ": use larger gradient buckets");
  }
}

void ReplicaLink::send(const float* data, std::int64_t floats, int peer, int tag, TrafficPurpose purpose,
                       MPI_Request& request) {
  check(MPI_Isend(data, static_cast<int>(floats), MPI_FLOAT, peer, tag_base_ + tag, comm_, &request), "MPI_Isend to a replica");
  traffic_[purpose] += floats * static_cast<std::int64_t>(sizeof(float));
}

void ReplicaLink::send(const std::vector<double>& data, int peer, int tag, TrafficPurpose purpose, MPI_Request& request) {
  check(MPI_Isend(data.data(), static_cast<int>(data.size()), MPI_DOUBLE, peer, tag_base_ + tag, comm_, &request),
        "MPI_Isend to a replica");
  traffic_[purpose] += static_cast<std::int64_t>(data.size() * sizeof(double));
}

void ReplicaLink::receive(float* data, std::int64_t floats, int peer, int tag, MPI_Request& request) {
  check(MPI_Irecv(data, static_cast<int>(floats), MPI_FLOAT, peer, tag_base_ + tag, comm_, &request),
        "MPI_Irecv from a replica");
}

void ReplicaLink::receive(std::vector<double>& data, int peer, int tag, MPI_Request& request) {
  check(MPI_Irecv(data.data(), static_cast<int>(data.size()), MPI_DOUBLE, peer, tag_base_ + tag, comm_, &request),
        "MPI_Irecv from a replica");
}

bool completed(MPI_Request& request) {
  if (request == MPI_REQUEST_NULL) {
    return true;
  }
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test of a message between replicas");
  return done != 0;
}

bool completed(std::vector<MPI_Request>& requests) {
  bool all = true;
  for (MPI_Request& request : requests) {
    all = completed(request) && all;
  }
  return all;
}

bool abandon(std::vector<MPI_Request>& receives, std::vector<MPI_Request>& sends) noexcept {
  if (!mpi_is_active()) {
    return true;
  }
  for (MPI_Request& request : receives) {
    if (request != MPI_REQUEST_NULL) {
      MPI_Cancel(&request);
    }
  }
  const bool received = settle_or_free(receives, grace_s);
  return settle_or_free(sends, grace_s) && received;
}

}  // namespace minipipe::core
