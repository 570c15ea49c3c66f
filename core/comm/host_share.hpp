#pragma once

#include <mpi.h>

namespace minipipe::core {

// How the ranks of this process's host share it. With more ranks than cores, times say more about the sharing than about the
// order of the work.
struct HostShare {
  int ranks = 1;  // of the communicator, on this host
  int cores = 1;  // logical ones that any of these ranks may run on
};

// Collective.
HostShare host_share(MPI_Comm comm);

}  // namespace minipipe::core
