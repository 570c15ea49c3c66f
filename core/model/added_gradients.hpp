#pragma once

#include <vector>

#include "core/model/stage_tensors.hpp"

namespace minipipe::core {

// The runs of `array`, a stage's gradients, that every backward adds to, in ascending order: vectors, embeddings and what has
// more than one product. The others are matrices of linear layers: the first backward after an update overwrites them
// (LayerContext::fresh_gradients), so that nobody has to set them to zero.
std::vector<Vector<float>> added_gradients(const Vector<float>& array, const StageTensors<float>& gradients);

}  // namespace minipipe::core
