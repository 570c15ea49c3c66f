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
  // Of the hidden features that are computed: those that are trained. Empty: all of them.
  std::vector<FeatureRun> trained_features = {};

  bool any() const { return attention || mlp; }
  friend bool operator==(const BlockShare&, const BlockShare&) = default;
};

// By block of the stage. Without SDP everything. InputError naming sdp.neuron_groups if the hidden features do not divide into
// the groups, RunError if the masks do not fit the stage.
std::vector<BlockShare> block_shares(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication);

// True if each of them computes, or computes and trains, all of its block with all hidden features. Of one replica.
bool holds_everything(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication);

// The model as this replica computes it: its hidden width is that of the neurons it holds (forward masking of neurons).
ModelConfig computed_model(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication);

}  // namespace minipipe::core
