#include "core/bench/branches.hpp"

#include <set>

namespace minipipe::core {

Branches branches_of(const ModelConfig& model) {
  Branches has;
  for (const int layer : first_of_each_kind(model)) {
    const LayerKind kind = layer_kind(model, layer);
    const bool both = kind == LayerKind::transformer;
    has.attention = has.attention || both || kind == LayerKind::attention;
    has.mlp = has.mlp || both || kind == LayerKind::mlp;
    has.experts = has.experts || kind == LayerKind::experts;
    has.state_space = has.state_space || kind == LayerKind::state_space;
  }
  return has;
}

std::vector<int> first_of_each_kind(const ModelConfig& model) {
  std::vector<int> layers;
  std::set<LayerKind> seen;
  for (int layer = 0; layer < model.layers; ++layer) {
    if (seen.insert(layer_kind(model, layer)).second) layers.push_back(layer);
  }
  return layers;
}

}  // namespace minipipe::core
