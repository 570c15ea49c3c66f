#include "core/train/global_norm.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "core/comm/mpi_error.hpp"

namespace minipipe::core {

void set_global_norm(Pipeline& pipeline, MPI_Comm comm) {
  LocalStage& stage = pipeline.stages().front();
  if (!stage.model) return;
  std::vector<int> mine;
  for (const ParameterEntry& entry : stage.model->parameters().entries()) mine.push_back(entry.global_index);
  int ranks = 1;
  MPI_Comm_size(comm, &ranks);
  const int count = static_cast<int>(mine.size());
  std::vector<int> counts(ranks);
  check(MPI_Allgather(&count, 1, MPI_INT, counts.data(), 1, MPI_INT, comm), "sharing tensor counts");
  std::vector<int> offsets(ranks);
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  const int all = offsets.back() + counts.back();
  std::vector<int> indices(all);
  check(MPI_Allgatherv(mine.data(), count, MPI_INT, indices.data(), counts.data(), offsets.data(), MPI_INT, comm),
        "sharing tensor numbers");
  std::vector<int> order(all);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return indices[a] < indices[b]; });

  auto squares = std::make_shared<std::vector<double>>(all);
  stage.model->set_global_squares([=](const std::vector<TensorSquares>& tensors) {
    std::vector<double> local;
    for (const TensorSquares& tensor : tensors) local.push_back(tensor.sum);
    check(MPI_Allgatherv(local.data(), count, MPI_DOUBLE, squares->data(), counts.data(), offsets.data(), MPI_DOUBLE, comm),
          "sharing gradient norms");
    double sum = 0;
    for (const int i : order) sum += (*squares)[i];
    return sum;
  });
}

}  // namespace minipipe::core
