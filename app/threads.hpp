#pragma once

#include <mpi.h>

#include <string>

namespace minipipe::app {

// Where the user has not set OMP_NUM_THREADS: as many threads as the ranks of this host have cores each, so that no core gets
// two (threads that wait for each other on a core they share make everything slower by up to a hundred times). To be called
// before Kokkos starts. Collective; returns what to tell the user, empty if nothing was chosen.
std::string choose_threads(MPI_Comm comm);

}  // namespace minipipe::app
