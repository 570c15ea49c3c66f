#pragma once

#include <mpi.h>

#include "core/profile/profile.hpp"

namespace minipipe::core {

// The machine of this process.
Machine this_machine();

// The machine of all ranks: their hosts, rank 0's other fields. Collective; meaningful on rank 0.
Machine machine_of(MPI_Comm comm);

}  // namespace minipipe::core
