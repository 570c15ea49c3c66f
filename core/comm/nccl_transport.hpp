#pragma once

#include <mpi.h>

#include <memory>

#include "core/comm/transport.hpp"

namespace minipipe::core {

#ifdef MINIPIPE_HAVE_NCCL
inline constexpr bool have_nccl = true;
#else
inline constexpr bool have_nccl = false;
#endif

// Messages from GPU to GPU. Each directed edge has a communicator of its two ranks and a stream on each side, so that a message
// that waits holds up no kernel and no other edge; an event behind each operation says when it is done. A receive is enqueued
// only when its message has been announced (by MPI): between segments nothing is under way, and who waits for the whole GPU
// waits for no peer. Each rank needs a GPU of its own. Defined where have_nccl.
std::unique_ptr<Transport> make_nccl_transport(MPI_Comm comm);

}  // namespace minipipe::core
