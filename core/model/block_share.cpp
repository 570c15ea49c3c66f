#include "core/model/block_share.hpp"

#include <algorithm>
#include <string>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

int units_of_block(const ReplicaOptions& options) {
  return options.unit == SdpUnit::block ? 1 : options.unit == SdpUnit::sublayer ? 2 : options.neuron_groups;
}

int features_of_group(const ModelConfig& model, const ReplicaOptions& options) {
  const int hidden = hidden_width(model);
  if (options.neuron_groups < 1 || hidden % options.neuron_groups != 0) {
    throw InputError("sdp.neuron_groups = " + std::to_string(options.neuron_groups) + " does not divide the " +
                     std::to_string(hidden) + " hidden features of an MLP; choose a divisor");
  }
  return hidden / options.neuron_groups;
}

// The groups of a block that the replica holds, ascending.
std::vector<int> held_groups(const ReplicaOptions& options, int block) {
  std::vector<int> held;
  for (int group = 0; group < options.neuron_groups; ++group) {
    if (options.masks.holds(options.replica, block * options.neuron_groups + group)) held.push_back(group);
  }
  return held;
}

void check_masks(const StageLayers& layers, const ReplicaOptions& options) {
  const int units = layers.blocks * units_of_block(options);
  if (options.masks.units() != units) {
    throw RunError("the masks have " + std::to_string(options.masks.units()) + " units, but the stage has " +
                   std::to_string(units));
  }
}

// Held groups as runs of features.
std::vector<FeatureRun> runs_of(const std::vector<int>& groups, int features) {
  std::vector<FeatureRun> runs;
  for (const int group : groups) {
    if (!runs.empty() && runs.back().begin + runs.back().count == group * features) {
      runs.back().count += features;
    } else {
      runs.push_back({group * features, features});
    }
  }
  return runs;
}

BlockShare share_of(const ModelConfig& model, const ReplicaOptions& options, int block) {
  BlockShare share;
  if (options.unit == SdpUnit::neuron) {
    const std::vector<int> held = held_groups(options, block);
    if (options.backward_masking && static_cast<int>(held.size()) < options.neuron_groups) {
      share.trained_features = runs_of(held, features_of_group(model, options));
    }
    return share;
  }
  if (options.unit == SdpUnit::block) {
    share.attention_trained = share.mlp_trained = options.masks.holds(options.replica, block);
  } else {
    share.attention_trained = options.masks.holds(options.replica, 2 * block);
    share.mlp_trained = options.masks.holds(options.replica, 2 * block + 1);
  }
  if (options.forward_masking()) {
    share.attention = share.attention_trained;
    share.mlp = share.mlp_trained;
  }
  return share;
}

}  // namespace

std::vector<BlockShare> block_shares(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication) {
  if (!replication.sdp()) return std::vector<BlockShare>(static_cast<std::size_t>(layers.blocks));
  check_masks(layers, replication);
  std::vector<BlockShare> shares;
  for (int b = 0; b < layers.blocks; ++b) shares.push_back(share_of(model, replication, b));
  return shares;
}

bool holds_everything(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication) {
  const std::vector<BlockShare> shares = block_shares(model, layers, replication);
  return std::all_of(shares.begin(), shares.end(), [](const BlockShare& share) { return share == BlockShare(); }) &&
         hidden_width(computed_model(model, layers, replication)) == hidden_width(model);
}

ModelConfig computed_model(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication) {
  ModelConfig computed = model;
  if (!replication.forward_masking() || replication.unit != SdpUnit::neuron || layers.blocks == 0) return computed;
  check_masks(layers, replication);
  const int features = features_of_group(model, replication);
  const std::size_t held = held_groups(replication, 0).size();
  for (int b = 0; b < layers.blocks; ++b) {
    if (held == 0 || held_groups(replication, b).size() != held) {
      throw RunError("neuron masks must leave a replica equally many groups of every block, and at least one");
    }
  }
  computed.hidden = static_cast<int>(held) * features;
  return computed;
}

}  // namespace minipipe::core
