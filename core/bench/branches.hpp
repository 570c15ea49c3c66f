#pragma once

#include <vector>

#include "core/model/model_config.hpp"

namespace minipipe::core {

// Which kinds of branches a model's layers have; a transformer's layer has the first two.
struct Branches {
  bool attention = false, mlp = false, experts = false, state_space = false;
};
Branches branches_of(const ModelConfig& model);

// The first layer of each kind that the model has, in the model's order.
std::vector<int> first_of_each_kind(const ModelConfig& model);

}  // namespace minipipe::core
