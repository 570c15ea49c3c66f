#include "core/train/global_norm.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/comm/mpi_error.hpp"

namespace minipipe::core {

namespace {

// Every rank's values on all ranks, in the order of ranks.
std::vector<TensorSquares> share(MPI_Comm comm, const std::vector<TensorSquares>& mine) {
  int ranks = 1;
  MPI_Comm_size(comm, &ranks);
  const int bytes = static_cast<int>(mine.size() * sizeof(TensorSquares));
  std::vector<int> counts(ranks), offsets(ranks);
  check(MPI_Allgather(&bytes, 1, MPI_INT, counts.data(), 1, MPI_INT, comm), "sharing the number of gradient norms");
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  std::vector<TensorSquares> all(static_cast<std::size_t>(offsets.back() + counts.back()) / sizeof(TensorSquares));
  check(MPI_Allgatherv(mine.data(), bytes, MPI_BYTE, all.data(), counts.data(), offsets.data(), MPI_BYTE, comm),
        "sharing gradient norms");
  return all;
}

}  // namespace

void set_global_norm(Pipeline& pipeline, MPI_Comm comm) {
  LocalStage& stage = pipeline.stages().front();
  if (!stage.model) return;
  stage.model->set_global_squares([comm](const std::vector<TensorSquares>& mine) {
    std::vector<TensorSquares> all = share(comm, mine);
    std::stable_sort(all.begin(), all.end(),
                     [](const TensorSquares& a, const TensorSquares& b) { return a.global_index < b.global_index; });
    double sum = 0;
    for (const TensorSquares& tensor : all) sum += tensor.sum;
    return sum;
  });
}

}  // namespace minipipe::core
