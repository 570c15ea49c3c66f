#include "core/train/mean_loss.hpp"

#include <algorithm>

#include "core/comm/mpi_error.hpp"
#include "core/train/gather.hpp"

namespace minipipe::core {

void sort_by_microbatch(std::vector<MicrobatchLoss>& losses) {
  std::sort(losses.begin(), losses.end(),
            [](const MicrobatchLoss& a, const MicrobatchLoss& b) { return a.microbatch < b.microbatch; });
}

double mean_loss(std::span<const MicrobatchLoss> losses) {
  double tokens = 0;
  for (const MicrobatchLoss& loss : losses) tokens += static_cast<double>(loss.tokens);
  double mean = 0;
  for (const MicrobatchLoss& loss : losses) {
    if (loss.tokens > 0) mean += loss.loss / (tokens / static_cast<double>(loss.tokens));
  }
  return mean;
}

double mean_loss(MPI_Comm comm, const std::vector<MicrobatchLoss>& mine) {
  std::vector<MicrobatchLoss> all;
  for (const auto& rank : gather(comm, mine)) all.insert(all.end(), rank.begin(), rank.end());
  sort_by_microbatch(all);
  double mean = mean_loss(all);
  check(MPI_Bcast(&mean, 1, MPI_DOUBLE, 0, comm), "sharing a mean loss");
  return mean;
}

}  // namespace minipipe::core
