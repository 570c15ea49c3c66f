#include "core/train/global_norm.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "core/train/gather.hpp"

namespace minipipe::core {

namespace {

// Adds up the ranks' sums of squares, which are of the same tensors at every update.
class GlobalSquares {
 public:
  GlobalSquares(MPI_Comm comm, const std::vector<TensorSquares>& mine) : gather_(comm, mine.size()) {
    const std::vector<TensorSquares>& all = gather_(mine);
    order_.resize(all.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return all[a].global_index < all[b].global_index; });
  }

  double operator()(const std::vector<TensorSquares>& mine) {
    const std::vector<TensorSquares>& all = gather_(mine);
    double sum = 0;
    for (const std::size_t i : order_) sum += all[i].sum;
    return sum;
  }

 private:
  GatherEverywhere<TensorSquares> gather_;
  std::vector<std::size_t> order_;  // by tensor, then by rank
};

}  // namespace

void set_global_norm(Pipeline& pipeline, MPI_Comm comm) {
  LocalStage& stage = pipeline.stages().front();
  if (!stage.model) return;
  // Shared, as the function is copied. The stage's end frees it, which is before MPI's.
  const auto squares = std::make_shared<std::optional<GlobalSquares>>();
  stage.model->set_global_squares([comm, squares](const std::vector<TensorSquares>& mine) {
    if (!*squares) squares->emplace(comm, mine);
    return (**squares)(mine);
  });
}

}  // namespace minipipe::core
