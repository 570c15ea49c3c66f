#include "core/comm/host_share.hpp"

#include <sched.h>

#include "core/comm/mpi_error.hpp"

namespace minipipe::core {

HostShare host_share(MPI_Comm comm) {
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "finding the ranks of a host");
  HostShare share;
  check(MPI_Comm_size(host, &share.ranks), "counting the ranks of a host");
  // Ranks may be bound to a core each, or all be free to run on all: the union counts.
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  cpu_set_t all;
  check(MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, host), "counting the cores of a host");
  share.cores = CPU_COUNT(&all) > 0 ? CPU_COUNT(&all) : 1;
  check(MPI_Comm_free(&host), "finding the ranks of a host");
  return share;
}

}  // namespace minipipe::core
