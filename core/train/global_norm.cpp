#include "core/train/global_norm.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include "core/train/gather.hpp"

namespace minipipe::core {

void set_global_norm(Pipeline& pipeline, MPI_Comm comm) {
  LocalStage& stage = pipeline.stages().front();
  if (!stage.model) return;
  // Shared, as the function is copied. The stage's end frees it, which is before MPI's.
  const auto type = std::make_shared<const ElementType>(sizeof(TensorSquares));
  stage.model->set_global_squares([comm, type](const std::vector<TensorSquares>& mine) {
    std::vector<TensorSquares> all = gather_everywhere(comm, mine, *type);
    std::stable_sort(all.begin(), all.end(),
                     [](const TensorSquares& a, const TensorSquares& b) { return a.global_index < b.global_index; });
    double sum = 0;
    for (const TensorSquares& tensor : all) sum += tensor.sum;
    return sum;
  });
}

}  // namespace minipipe::core
