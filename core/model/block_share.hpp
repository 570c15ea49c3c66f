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

// What a replica computes and trains of a block. A branch that is not computed passes the residual stream through.
struct BlockShare {
  bool attention = true;  // computed
  bool mlp = true;
  bool attention_trained = true;  // the weight half of its backward is
  bool mlp_trained = true;
  int features = 0;  // hidden features of the MLP that are computed; 0: all
  // Those of them that are trained; empty: all.
  std::vector<FeatureRun> trained_features = {};

  bool any() const { return attention || mlp; }
  friend bool operator==(const BlockShare&, const BlockShare&) = default;
};

// By block of the stage. Without SDP everything. RunError if the masks do not fit the stage.
std::vector<BlockShare> block_shares(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication);

// True if the replica computes and trains all of every block.
bool holds_everything(const std::vector<BlockShare>& shares);

}  // namespace minipipe::core
