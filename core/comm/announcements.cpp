#include "core/comm/announcements.hpp"

#include <algorithm>

#include "core/comm/mpi_error.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

// Nothing is left that MPI could touch: the messages are empty.
AnnouncedSends::~AnnouncedSends() {
  if (!mpi_is_active()) return;
  for (MPI_Request& request : requests_) {
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  }
}

void AnnouncedSends::connect(MPI_Comm comm, int peer, int tag) {
  comm_ = comm;
  peer_ = peer;
  tag_ = tag;
}

void AnnouncedSends::announce(int slot) {
  MPI_Request& request = requests_.at(static_cast<std::size_t>(slot));
  if (request != MPI_REQUEST_NULL) throw RunError("a message was announced before the last one of its slot was heard of");
  check(MPI_Isend(nullptr, 0, MPI_BYTE, peer_, tag_, comm_, &request), "MPI_Isend of an announcement");
}

bool AnnouncedSends::told(int slot) {
  int done = 0;
  check(MPI_Test(&requests_.at(static_cast<std::size_t>(slot)), &done, MPI_STATUS_IGNORE), "MPI_Test of an announcement");
  return done != 0;
}

void AnnouncedReceives::connect(MPI_Comm comm, int peer, int tag) {
  comm_ = comm;
  peer_ = peer;
  tag_ = tag;
}

std::optional<int> AnnouncedReceives::take() {
  if (posted_.empty() || comm_ == MPI_COMM_NULL) return std::nullopt;
  int there = 0;
  check(MPI_Iprobe(peer_, tag_, comm_, &there, MPI_STATUS_IGNORE), "MPI_Iprobe for an announcement");
  if (there == 0) return std::nullopt;
  check(MPI_Recv(nullptr, 0, MPI_BYTE, peer_, tag_, comm_, MPI_STATUS_IGNORE), "MPI_Recv of an announcement");
  const int slot = posted_.front();
  posted_.pop_front();
  return slot;
}

bool AnnouncedReceives::waits(int slot) const { return std::find(posted_.begin(), posted_.end(), slot) != posted_.end(); }

}  // namespace minipipe::core
