#pragma once

#include <mpi.h>

#include "core/train/pipeline.hpp"

namespace minipipe::core {

// For train.clip = "global": at each update the stages exchange the sums of squares of their tensors and add them in the order
// of the unsplit model, so that the norm is the same to the last bit for any number of stages. One stage per rank; collective
// at every update, so for flush schedules only.
void set_global_norm(Pipeline& pipeline, MPI_Comm comm);

}  // namespace minipipe::core
