#pragma once

#include <mpi.h>

#include <vector>

namespace minipipe::core {

// For destructors. Tests the requests until all have completed or `grace_s` seconds have passed. True if all completed; the
// others are freed, and the caller must keep their memory allocated for good, since MPI may still read or write it.
bool settle_or_free(std::vector<MPI_Request>& requests, double grace_s) noexcept;

}  // namespace minipipe::core
