#pragma once

#include <mpi.h>

#include "core/train/pipeline.hpp"

namespace minipipe::core {

// For train.clip = "global": at each update all ranks exchange the sums of squares of the parameters they own and add them in
// the order of the unsplit model's tensors, then of ranks, so that every parameter counts once and the norm is the same to the
// last bit on all ranks and for any number of stages. One stage per rank; collective at every update, so for flush schedules
// only.
void set_global_norm(Pipeline& pipeline, MPI_Comm comm);

}  // namespace minipipe::core
