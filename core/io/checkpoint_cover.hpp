#pragma once

#include <string>
#include <vector>

#include "core/io/checkpoint.hpp"
#include "core/io/checkpoint_ranks.hpp"

namespace minipipe::core::checkpoint {

struct Dataset {
  std::string name;  // full name in the file
  std::vector<hsize_t> shape;
};

// Proves that the parts of all ranks cover each dataset exactly once. Collective; returns the same list, by name, on every
// rank, or throws the same RunError on every rank: a part that is none, another shape on another rank, parts that overlap,
// elements that nobody gives, a tensor without its value.
std::vector<Dataset> agree_on_datasets(const Ranks& ranks, const std::vector<TensorPart>& mine);

}  // namespace minipipe::core::checkpoint
