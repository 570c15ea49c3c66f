#include "core/model/added_gradients.hpp"

#include <algorithm>

namespace minipipe::core {

namespace {

// As linear_backward_weight() and the head are called with `fresh_gradients`.
std::vector<Vector<float>> overwritten(const StageTensors<float>& gradients) {
  std::vector<Vector<float>> all;
  const auto add = [&](const Matrix<float>& matrix) {
    if (matrix.size() > 0) all.push_back(flatten(matrix));
  };
  for (const BlockTensors<float>& block : gradients.blocks) {
    for (const LinearTensors<float>& map : block.attention.qkv) add(map.weight);
    add(block.attention.projection.weight);
    for (const LinearTensors<float>& map : block.mlp.up) add(map.weight);
    add(block.mlp.down.weight);
    add(block.state_space.in);
    add(block.state_space.out);
  }
  add(gradients.head.weight);
  return all;
}

}  // namespace

std::vector<Vector<float>> added_gradients(const Vector<float>& array, const StageTensors<float>& gradients) {
  std::vector<Vector<float>> matrices = overwritten(gradients);
  std::sort(matrices.begin(), matrices.end(), [](const auto& a, const auto& b) { return a.data() < b.data(); });
  std::vector<Vector<float>> runs;
  std::int64_t at = 0;
  const auto add_until = [&](std::int64_t end) {
    if (end > at) runs.push_back(slice(array, static_cast<std::size_t>(at), end - at));
  };
  for (const Vector<float>& matrix : matrices) {
    const std::int64_t begin = matrix.data() - array.data();
    add_until(begin);
    at = begin + static_cast<std::int64_t>(matrix.size());
  }
  add_until(static_cast<std::int64_t>(array.size()));
  return runs;
}

}  // namespace minipipe::core
