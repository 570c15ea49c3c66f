#pragma once

#ifdef MINIPIPE_HAVE_NCCL

#include <mpi.h>

#include <cstddef>
#include <vector>

#include "core/comm/announcements.hpp"
#include "core/comm/nccl_stream.hpp"
#include "core/comm/transport.hpp"

namespace minipipe::core {

// One end of a directed edge: a communicator of two, of which rank 0 sends, with a stream and one event for each slot.
// A receive is enqueued when its message is announced.
class NcclEdge {
 public:
  enum class Role { sender, receiver };

  NcclEdge(EdgeEnd end, Role role, int slots);

  const EdgeEnd& end() const { return end_; }

  // Before join: what the sender gives to the receiver. Not collective. Throws RunError if the library fails.
  void make_name();
  // Connects with the peer, which must do the same, and passes one number to set up what NCCL makes at the first message.
  // Waits. Borrows the communicator. Throws RunError if the library fails.
  void join(MPI_Comm comm);

  // The sender enqueues the slot's message of `floats` floats in device memory; after join. The receiver is ready for one; also
  // before.
  void start(int slot, float* data, std::size_t floats);
  // True once the slot's operation is done. Throws RunError if a library or the device failed.
  bool done(int slot);

 private:
  struct Message {
    float* data = nullptr;
    std::size_t floats = 0;
  };

  EdgeEnd end_;
  Role role_;
  NcclStream stream_;
  ncclUniqueId name_{};
  AnnouncedSends sends_;
  AnnouncedReceives receives_;
  std::vector<Message> messages_;  // by slot, of a receiver
};

}  // namespace minipipe::core

#endif
