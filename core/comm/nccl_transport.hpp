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
// that waits holds up no kernel and no other edge; an event behind each operation says when it is done. A receive that waits
// occupies a little of the GPU. Each rank needs a GPU of its own. Defined where have_nccl.
std::unique_ptr<Transport> make_nccl_transport(MPI_Comm comm);

}  // namespace minipipe::core
