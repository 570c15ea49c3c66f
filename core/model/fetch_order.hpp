#pragma once

#include <vector>

#include "core/model/parameter_list.hpp"

namespace minipipe::core {

// The order in which a pass over a stage needs the weights of its layers (see StageLayerNumbers). `tied_head`: the head uses
// the embedding's matrix.
inline std::vector<int> forward_fetch_order(const StageLayers& layers, bool tied_head) {
  std::vector<int> order;
  if (layers.embedding) order.push_back(StageLayerNumbers::embedding);
  for (int b = 0; b < layers.blocks; ++b) order.push_back(StageLayerNumbers::block(b));
  if (layers.head) order.push_back(StageLayerNumbers::head(layers));
  if (tied_head) order.push_back(StageLayerNumbers::embedding);
  return order;
}

// Of a whole backward or its input half; the weight half needs none.
inline std::vector<int> backward_fetch_order(const StageLayers& layers, bool tied_head) {
  std::vector<int> order;
  if (tied_head) order.push_back(StageLayerNumbers::embedding);
  if (layers.head) order.push_back(StageLayerNumbers::head(layers));
  for (int b = layers.blocks - 1; b >= 0; --b) order.push_back(StageLayerNumbers::block(b));
  return order;
}

}  // namespace minipipe::core
