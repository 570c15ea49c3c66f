#include "core/model/flops.hpp"

#include "core/model/block_share.hpp"

namespace minipipe::core {

namespace {

double mlp_flops(const ModelConfig& model) {
  const double maps = architecture(model).gated_mlp ? 3 : 2;
  return 2.0 * model.width * maps * hidden_width(model);
}

double attention_flops(const ModelConfig& model, int sequence) {
  const double width = model.width;
  return 2 * width * (2 * width + 2 * kv_width(model)) + 2 * width * sequence;  // two products, half of each
}

double state_space_flops(const ModelConfig& model) {
  const double width = model.width, inside = state_width(model), convolved = conv_features(model);
  const double projections = 2 * width * (inside + convolved + state_heads(model)) + 2 * inside * width;
  return projections + 2 * convolved * model.conv_width + 4 * inside * model.state_size;
}

// Flops per token of a transformer block's products.
struct Products {
  double computed = 0;  // with weights
  double trained = 0;   // of these, those whose weights are trained
  double scores = 0;    // of attention, without weights

  Products& operator+=(const Products& other) {
    computed += other.computed;
    trained += other.trained;
    scores += other.scores;
    return *this;
  }
};

Products products_of(const ModelConfig& model, const TrainShape& shape, const BlockShare& share) {
  const double width = model.width;
  const double scores = 2 * width * shape.sequence;
  const double projections = attention_flops(model, shape.sequence) - scores;
  const double feature = 2 * width * (architecture(model).gated_mlp ? 3 : 2);  // of the MLP's hidden ones
  Products products;
  if (share.attention) products = {projections, share.attention_trained ? projections : 0, scores};
  if (!share.mlp) return products;
  const int computed = share.features > 0 ? share.features : hidden_width(model);
  int trained = share.mlp_trained ? computed : 0;
  if (!share.trained_features.empty()) {
    trained = 0;
    for (const FeatureRun& run : share.trained_features) trained += run.count;
  }
  products.computed += computed * feature;
  products.trained += trained * feature;
  return products;
}

}  // namespace

double block_flops_per_token(const ModelConfig& model, int sequence, LayerKind kind) {
  switch (kind) {
    case LayerKind::attention:
      return attention_flops(model, sequence);
    case LayerKind::mlp:
      return mlp_flops(model);
    case LayerKind::experts:
      return 2.0 * model.width * (model.experts + 3.0 * model.expert_choices * expert_width(model));
    case LayerKind::state_space:
      return state_space_flops(model);
    default:
      return attention_flops(model, sequence) + mlp_flops(model);
  }
}

double flops_per_microbatch(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers) {
  const double rows = shape.rows();
  const double head = layers.head ? 2 * rows * model.width * model.vocab : 0.0;
  double blocks = 0;
  for (int b = layers.first_block; b < layers.first_block + layers.blocks; ++b) {
    blocks += block_flops_per_token(model, shape.sequence, layer_kind(model, b));
  }
  return 3 * (rows * blocks + head);
}

double flops_per_microbatch(const ModelConfig& model, const TrainShape& shape) {
  return flops_per_microbatch(model, shape, {true, 0, model.layers, true});
}

double active_flops_per_microbatch(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers,
                                   const ReplicaOptions& replication) {
  const std::vector<BlockShare> shares = block_shares(model, layers, replication);
  if (shares == full_shares(model, layers)) return flops_per_microbatch(model, shape, layers);
  StageLayers without_blocks = layers;
  without_blocks.blocks = 0;
  double flops = flops_per_microbatch(model, shape, without_blocks);
  for (const BlockShare& share : shares) {
    // Forward and input gradient, then the weight gradient. The products of attention have two input gradients instead.
    const Products products = products_of(model, shape, share);
    flops += shape.rows() * (2 * products.computed + products.trained + 3 * products.scores);
  }
  return flops;
}

BlockProducts held_products(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers,
                            const ReplicaOptions& replication) {
  const std::vector<BlockShare> shares = block_shares(model, layers, replication), full = full_shares(model, layers);
  if (shares == full) return {};
  Products mine, all;
  for (std::size_t b = 0; b < shares.size(); ++b) {
    mine += products_of(model, shape, shares[b]);
    all += products_of(model, shape, full[b]);
  }
  return {(mine.computed + mine.scores) / (all.computed + all.scores), mine.trained / all.trained};
}

GemmShape largest_hidden_gemm(const ModelConfig& model, const TrainShape& shape) {
  return {shape.rows(), hidden_width(model), model.width};
}

}  // namespace minipipe::core
