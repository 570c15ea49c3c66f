#pragma once

#include <mpi.h>

#include <span>
#include <vector>

#include "core/model/microbatch_loss.hpp"

namespace minipipe::core {

void sort_by_microbatch(std::vector<MicrobatchLoss>& losses);

// The mean over all counted tokens, in nats, of losses in ascending order of microbatches: the same to the last bit whichever
// ranks computed them. 0 for none.
double mean_loss(std::span<const MicrobatchLoss> losses);

// The same over the losses of all ranks, on all ranks. Collective.
double mean_loss(MPI_Comm comm, const std::vector<MicrobatchLoss>& mine);

}  // namespace minipipe::core
