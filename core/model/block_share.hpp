#pragma once

#include <vector>

#include "core/model/model_config.hpp"
#include "core/model/partition.hpp"
#include "core/model/replication.hpp"

namespace minipipe::core {

// Neighbouring hidden features of an MLP: [begin, begin + count).
struct FeatureRun {
  int begin = 0;
  int count = 0;
  friend bool operator==(const FeatureRun&, const FeatureRun&) = default;
};

// What a replica computes and trains of a block. A branch that is not computed passes the residual stream through. By default
// everything of a transformer layer; a layer of a hybrid has one branch (see full_share).
struct BlockShare {
  bool attention = true;  // computed
  bool mlp = true;
  bool attention_trained = true;  // the weight half of its backward is
  bool mlp_trained = true;
  bool experts = false;  // computed and trained: there is no SDP of these layers
  bool state_space = false;
  int features = 0;  // hidden features of the MLP that are computed; 0: all
  // Those of them that are trained; empty: all.
  std::vector<FeatureRun> trained_features = {};

  bool any() const { return attention || mlp || experts || state_space; }
  friend bool operator==(const BlockShare&, const BlockShare&) = default;
};

// All of a layer of the model.
BlockShare full_share(const ModelConfig& model, int block);
// By block of the stage.
std::vector<BlockShare> full_shares(const ModelConfig& model, const StageLayers& layers);

// By block of the stage. Without SDP everything. RunError if the masks do not fit the stage.
std::vector<BlockShare> block_shares(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication);

// Which branches of a block a list of tensors has.
struct BranchesThere {
  bool attention = true;
  bool mlp = true;
  bool experts = false;
  bool state_space = false;
};
std::vector<BranchesThere> computed_branches(const std::vector<BlockShare>& shares);
std::vector<BranchesThere> trained_branches(const std::vector<BlockShare>& shares);

}  // namespace minipipe::core
