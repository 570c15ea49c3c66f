#pragma once

#include <mpi.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace minipipe::core {

// An edge whose messages travel beside MPI, but are announced by it: a receive that is started only when its message is on its
// way never waits on the device for a message that may not come, where it would hold up whoever waits for the whole device
// (allocations, copies for a checkpoint). Announcements are empty MPI messages of the edge's peer and tag; they come in the
// order of the messages. Both classes borrow the communicator, which returns errors; every error is a RunError.
class AnnouncedSends {
 public:
  explicit AnnouncedSends(int slots) : requests_(static_cast<std::size_t>(slots), MPI_REQUEST_NULL) {}
  ~AnnouncedSends();
  AnnouncedSends(const AnnouncedSends&) = delete;
  AnnouncedSends& operator=(const AnnouncedSends&) = delete;

  // Once, before the first.
  void connect(MPI_Comm comm, int peer, int tag);
  // The slot's message is on its way.
  void announce(int slot);
  // MPI is done with the slot's announcement: another one may follow.
  bool told(int slot);

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int peer_ = 0;
  int tag_ = 0;
  std::vector<MPI_Request> requests_;
};

class AnnouncedReceives {
 public:
  // Once, before take() is asked.
  void connect(MPI_Comm comm, int peer, int tag);
  // The slot is ready for a message; slots are filled in the order of posts.
  void post(int slot) { posted_.push_back(slot); }
  // The slot that takes the next message, if one has been announced: its receive is to be started. Ask until there is none.
  std::optional<int> take();
  // The slot is posted and its message is not announced.
  bool waits(int slot) const;

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int peer_ = 0;
  int tag_ = 0;
  std::deque<int> posted_;
};

}  // namespace minipipe::core
