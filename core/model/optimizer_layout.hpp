#pragma once

#include <cstdint>
#include <vector>

#include "core/model/parameter_list.hpp"
#include "core/model/replica_layout.hpp"
#include "core/optim/adamw.hpp"
#include "core/optim/muon.hpp"
#include "core/optim/optimizer.hpp"

namespace minipipe::core {

// Plans of memory need no ranges, of which there can be one for every row of a tensor.
enum class OptimizerRanges { all, none };

// Which optimizer treats which part of a stage's flat arrays, and where second moments lie. What a replica does not train, or
// another one steps, is in no range: neither decay nor momentum moves it.
struct OptimizerLayout {
  // Of a stage without replicas.
  OptimizerLayout(const std::vector<ParameterEntry>& entries, OptimizerKind optimizer);
  // InputError for Muon where this replica does not have whole matrices.
  OptimizerLayout(const ReplicaLayout& layout, OptimizerKind optimizer, OptimizerRanges wanted = OptimizerRanges::all);

  std::vector<ParameterRange> ranges;  // AdamW's or NAdam's; padding included
  std::vector<MuonMatrix> matrices;    // Muon's: none for other optimizers
  // By entry of ReplicaLayout::trained: floats from the start of their array; -1: the tensor has none. Empty where moments are
  // in shards: then they lie as first moments do.
  std::vector<std::int64_t> second_moments;
  std::size_t second_moment_floats = 0;

 private:
  void add_tensors(const std::vector<ParameterEntry>& forward, const std::vector<ParameterEntry>& trained,
                   OptimizerKind optimizer, OptimizerRanges wanted);
  void add_shards(const ReplicaLayout& layout);
};

}  // namespace minipipe::core
