#pragma once

#include <mpi.h>

#include <string>

namespace minipipe::app {

// Whether the value of OMP_NUM_THREADS, null if there is none, says how many threads to take: it may be a list.
bool says_threads(const char* value);

// Where the user has not set OMP_NUM_THREADS to that: as many threads as the ranks of this host have cores each, so that no
// core gets two (threads that wait for each other on a core they share make everything slower by up to a hundred times). To be
// called before Kokkos starts. Collective; returns what to tell the user, empty if nothing was chosen.
std::string choose_threads(MPI_Comm comm);

}  // namespace minipipe::app
