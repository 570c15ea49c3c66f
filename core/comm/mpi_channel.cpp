#include "core/comm/mpi_channel.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "core/comm/mpi_error.hpp"
#include "core/comm/requests.hpp"
#include "core/types/types.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

constexpr double grace_s = 2.0;

void require_countable(const MessageBuffers& buffers) {
  if (buffers.elements() > std::numeric_limits<int>::max()) {
    throw InputError("a message between stages would hold " + std::to_string(buffers.elements()) +
                     " floats, more than one MPI message can (2147483647): lower train.microbatch_size, train.sequence or "
                     "model.width");
  }
}

[[noreturn]] void misuse(const char* what, int slot, int peer, int tag) {
  throw RunError(std::string(what) + " (slot " + std::to_string(slot) + ", peer rank " + std::to_string(peer) + ", tag " +
                 std::to_string(tag) + ")");
}

// Keeps memory that MPI may still touch allocated until the process ends.
void leak(const MessageBuffers& buffers) noexcept { [[maybe_unused]] auto* kept = new (std::nothrow) MessageBuffers(buffers); }

int checked_slot(int slot, const MessageBuffers& buffers, int peer, int tag) {
  if (slot < 0 || slot >= buffers.slots()) {
    misuse("message slot out of range", slot, peer, tag);
  }
  return slot;
}

}  // namespace

MpiSendChannel::MpiSendChannel(MPI_Comm comm, int peer, int tag, const MessageBuffers& buffers, const ExecutionSpace& instance)
    : comm_(comm),
      peer_(peer),
      tag_(tag),
      buffers_(buffers),
      instance_(instance),
      requests_(static_cast<std::size_t>(buffers.slots()), MPI_REQUEST_NULL) {
  require_countable(buffers_);
}

MpiSendChannel::MpiSendChannel(MPI_Comm comm, int peer, int tag, const MessageBuffers& buffers, std::int64_t& sent_bytes)
    : MpiSendChannel(comm, peer, tag, buffers) {
  sent_bytes_ = &sent_bytes;
}

MpiSendChannel::~MpiSendChannel() {
  if (mpi_is_active() && !settle_or_free(requests_, grace_s)) {
    leak(buffers_);
  }
}

void MpiSendChannel::send(int slot) {
  MPI_Request& request = requests_[static_cast<std::size_t>(checked_slot(slot, buffers_, peer_, tag_))];
  if (request != MPI_REQUEST_NULL) {
    misuse("send from a slot whose last message is still under way", slot, peer_, tag_);
  }
  if (buffers_.staged()) {
    Kokkos::deep_copy(instance_, Kokkos::subview(buffers_.host(), slot, Kokkos::ALL),
                      Kokkos::subview(buffers_.device(), slot, Kokkos::ALL));
    fence(instance_, "before MPI_Isend, because MPI reads the host copy at once");
  }
  check(
      MPI_Isend(buffers_.transport_slot(slot), static_cast<int>(buffers_.elements()), MPI_FLOAT, peer_, tag_, comm_, &request),
      "MPI_Isend");
  if (sent_bytes_ != nullptr)
    *sent_bytes_ += static_cast<std::int64_t>(buffers_.elements()) * static_cast<std::int64_t>(sizeof(float));
}

bool MpiSendChannel::sent(int slot) {
  MPI_Request& request = requests_[static_cast<std::size_t>(checked_slot(slot, buffers_, peer_, tag_))];
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test of a send");
  return done != 0;
}

MpiReceiveChannel::MpiReceiveChannel(MPI_Comm comm, int peer, int tag, const MessageBuffers& buffers,
                                     const ExecutionSpace& instance)
    : comm_(comm),
      peer_(peer),
      tag_(tag),
      buffers_(buffers),
      instance_(instance),
      requests_(static_cast<std::size_t>(buffers.slots()), MPI_REQUEST_NULL),
      full_(static_cast<std::size_t>(buffers.slots()), 0) {
  require_countable(buffers_);
}

MpiReceiveChannel::~MpiReceiveChannel() {
  if (!mpi_is_active()) {
    return;
  }
  for (MPI_Request& request : requests_) {
    if (request != MPI_REQUEST_NULL) {
      MPI_Cancel(&request);
    }
  }
  // A receive that was matched just before cannot be cancelled and completes when the sender's data comes.
  if (!settle_or_free(requests_, grace_s)) {
    leak(buffers_);
  }
}

void MpiReceiveChannel::post(int slot) {
  const auto index = static_cast<std::size_t>(checked_slot(slot, buffers_, peer_, tag_));
  if (requests_[index] != MPI_REQUEST_NULL) {
    misuse("receive posted twice in one slot", slot, peer_, tag_);
  }
  full_[index] = 0;
  check(MPI_Irecv(buffers_.transport_slot(slot), static_cast<int>(buffers_.elements()), MPI_FLOAT, peer_, tag_, comm_,
                  &requests_[index]),
        "MPI_Irecv");
}

bool MpiReceiveChannel::arrived(int slot) {
  const auto index = static_cast<std::size_t>(checked_slot(slot, buffers_, peer_, tag_));
  if (requests_[index] == MPI_REQUEST_NULL) {
    return full_[index] != 0;
  }
  int done = 0;
  MPI_Status status;
  check(MPI_Test(&requests_[index], &done, &status), "MPI_Test of a receive");
  if (done == 0) {
    return false;
  }
  int count = 0;
  check(MPI_Get_count(&status, MPI_FLOAT, &count), "MPI_Get_count");
  if (count != buffers_.elements()) {
    misuse(("a message of " + std::to_string(count) + " floats arrived where " + std::to_string(buffers_.elements()) +
            " were expected")
               .c_str(),
           slot, peer_, tag_);
  }
  if (buffers_.staged()) {
    Kokkos::deep_copy(instance_, Kokkos::subview(buffers_.device(), slot, Kokkos::ALL),
                      Kokkos::subview(buffers_.host(), slot, Kokkos::ALL));
    fence(instance_, "before the stage reads the message, because it may use another instance");
  }
  full_[index] = 1;
  return true;
}

}  // namespace minipipe::core
