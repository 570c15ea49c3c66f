#include "core/model/block_share.hpp"

#include "core/model/parameter_list.hpp"
#include "core/model/replica_shares.hpp"

namespace minipipe::core {

namespace {

// The tensors of a list that belong to the stage's blocks, with the block's number.
template <class Visit>
void for_block_tensors(const std::vector<ParameterEntry>& entries, int blocks, const Visit& visit) {
  for (const ParameterEntry& entry : entries) {
    const int block = entry.layer - StageLayerNumbers::block(0);
    if (block >= 0 && block < blocks) visit(static_cast<std::size_t>(block), entry);
  }
}

// The matrix to the hidden features: its rows are theirs.
bool up_matrix(const ParameterEntry& entry) { return entry.neurons == NeuronAxis::rows && entry.shape.size() > 1; }

std::vector<FeatureRun> runs_of(const ParameterEntry& entry) {
  std::vector<FeatureRun> runs;
  for (const Slab& slab : entry.slabs) {
    if (!runs.empty() && runs.back().begin + runs.back().count == slab.full_row) {
      runs.back().count += slab.rows;
    } else {
      runs.push_back({slab.full_row, slab.rows});
    }
  }
  return runs;
}

// `all`: the tensors of the stage, `held`: those of the replica.
std::vector<BlockShare> shares_of(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication,
                                  const std::vector<ParameterEntry>& all, const std::vector<ParameterEntry>& held) {
  const int hidden = hidden_width(model);
  std::vector<BlockShare> shares(static_cast<std::size_t>(layers.blocks), BlockShare{false, false, false, false});
  for_block_tensors(held, layers.blocks, [&](std::size_t b, const ParameterEntry& entry) {
    (entry.mlp ? shares[b].mlp_trained : shares[b].attention_trained) = true;
    if (!up_matrix(entry) || entry.shape[0] == hidden) return;
    if (replication.forward_masking()) {
      shares[b].features = entry.shape[0];
    } else {
      shares[b].trained_features = runs_of(entry);
    }
  });
  for_block_tensors(replication.forward_masking() ? held : all, layers.blocks, [&](std::size_t b, const ParameterEntry& entry) {
    (entry.mlp ? shares[b].mlp : shares[b].attention) = true;
  });
  return shares;
}

}  // namespace

BlockShare full_share(const ModelConfig& model, int block) {
  const LayerKind kind = layer_kind(model, block);
  const bool attention = kind == LayerKind::transformer || kind == LayerKind::attention;
  const bool mlp = kind == LayerKind::transformer || kind == LayerKind::mlp;
  return {.attention = attention,
          .mlp = mlp,
          .attention_trained = attention,
          .mlp_trained = mlp,
          .experts = kind == LayerKind::experts,
          .state_space = kind == LayerKind::state_space};
}

std::vector<BlockShare> full_shares(const ModelConfig& model, const StageLayers& layers) {
  std::vector<BlockShare> shares;
  for (int b = 0; b < layers.blocks; ++b) shares.push_back(full_share(model, layers.first_block + b));
  return shares;
}

std::vector<BlockShare> block_shares(const ModelConfig& model, const StageLayers& layers, const ReplicaOptions& replication) {
  if (!replication.sdp()) return full_shares(model, layers);
  const std::vector<ParameterEntry> all = split_parameter_list(model, layers, replication);
  return shares_of(model, layers, replication, all, held_parameter_list(all, replication));
}

std::vector<BlockShare> block_shares(const ModelConfig& model, const StageLayers& layers, const ReplicaLayout& layout) {
  if (!layout.options.sdp()) return full_shares(model, layers);
  return shares_of(model, layers, layout.options, layout.full, layout.trained);
}

std::vector<BranchesThere> computed_branches(const std::vector<BlockShare>& shares) {
  std::vector<BranchesThere> there;
  for (const BlockShare& share : shares) there.push_back({share.attention, share.mlp, share.experts, share.state_space});
  return there;
}

std::vector<BranchesThere> trained_branches(const std::vector<BlockShare>& shares) {
  std::vector<BranchesThere> there;
  for (const BlockShare& share : shares) {
    there.push_back({share.attention_trained, share.mlp_trained, share.experts, share.state_space});
  }
  return there;
}

}  // namespace minipipe::core
