#pragma once

#ifdef MINIPIPE_HAVE_NCCL

#include <memory>
#include <string>

#include "core/parallel/stream_link.hpp"

namespace minipipe::core {

// A link through NCCL: one communicator of all replicas of the stage, with a stream on which kernels and messages run. Each
// replica needs a GPU of its own. `name` completes the text of errors; `slots`: how many marks there are. Borrows the
// communicator. Throws RunError.
std::unique_ptr<StreamLink> make_nccl_link(const std::string& name, MPI_Comm replicas, int slots);

}  // namespace minipipe::core

#endif
