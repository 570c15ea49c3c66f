#pragma once

#include <cstdint>
#include <vector>

#include "core/model/parameter_list.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/muon.hpp"
#include "core/optim/optimizer.hpp"

namespace minipipe::core {

// Which optimizer treats which part of a stage's flat arrays, and where second moments lie.
struct OptimizerLayout {
  OptimizerLayout(const std::vector<ParameterEntry>& entries, OptimizerKind optimizer);

  std::vector<ParameterRange> ranges;        // AdamW's or NAdam's; padding included
  std::vector<MuonMatrix> matrices;          // Muon's: none for other optimizers
  std::vector<std::int64_t> second_moments;  // by entry: floats from the start of their array; -1: the tensor has none
  std::size_t second_moment_floats = 0;
};

}  // namespace minipipe::core
