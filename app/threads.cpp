#include "app/threads.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/comm/host_share.hpp"
#include "core/deck/rule_list.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace minipipe::app {

std::string choose_threads([[maybe_unused]] MPI_Comm comm) {
#if defined(_OPENMP)
  const core::HostShare share = core::host_share(comm);
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return "";
  // The library has read its environment; what it would take is the cores this process may run on.
  const int threads = std::clamp(share.cores / share.ranks, 1, std::max(1, omp_get_num_procs()));
  omp_set_num_threads(threads);
  return "OMP_NUM_THREADS is not set: " + core::plural(threads, "thread") + " on a rank (" + core::plural(share.ranks, "rank") +
         " on " + core::plural(share.cores, "core") + ")";
#else
  return "";
#endif
}

}  // namespace minipipe::app
