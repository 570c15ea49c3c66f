#pragma once

#ifdef MINIPIPE_HAVE_NCCL

#include <mpi.h>

#include <cstddef>

#include "core/comm/nccl_stream.hpp"
#include "core/comm/transport.hpp"

namespace minipipe::core {

// One end of a directed edge: a communicator of two, of which rank 0 sends, with a stream and one event for each slot.
class NcclEdge {
 public:
  enum class Role { sender, receiver };

  NcclEdge(EdgeEnd end, Role role, int slots);

  const EdgeEnd& end() const { return end_; }

  // Before join: what the sender gives to the receiver. Not collective. Throws RunError if the library fails.
  void make_name();
  // Connects with the peer, which must do the same, and passes one number to set up what NCCL makes at the first message.
  // Waits. Throws RunError if the library fails.
  void join(MPI_Comm comm);

  // Enqueues the slot's message of `floats` floats in device memory.
  void start(int slot, float* data, std::size_t floats);
  // True once the slot's operation is done. Throws RunError if the library or the device failed.
  bool done(int slot) { return stream_.reached(slot); }

 private:
  EdgeEnd end_;
  Role role_;
  NcclStream stream_;
  ncclUniqueId name_{};
};

}  // namespace minipipe::core

#endif
