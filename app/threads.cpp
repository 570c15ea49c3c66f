#include "app/threads.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/comm/host_share.hpp"
#include "core/deck/rule_list.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace minipipe::app {

bool says_threads(const char* value) {
  if (value == nullptr) return false;
  while (*value == ' ' || *value == '\t') ++value;
  return *value >= '1' && *value <= '9';
}

std::string choose_threads([[maybe_unused]] MPI_Comm comm) {
#if defined(_OPENMP)
  const core::HostShare share = core::host_share(comm);
  // The library has read its environment; of what is no number it takes all cores that this process may run on.
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  if (says_threads(wanted)) return "";
  const int threads = std::clamp(share.cores / share.ranks, 1, std::max(1, omp_get_num_procs()));
  omp_set_num_threads(threads);
  return std::string("OMP_NUM_THREADS is ") + (wanted == nullptr ? "not set" : "no number") + ": " +
         core::plural(threads, "thread") + " on a rank (" + core::plural(share.ranks, "rank") + " on " +
         core::plural(share.cores, "core") + ")";
#else
  return "";
#endif
}

}  // namespace minipipe::app
