#include "core/model/flops.hpp"

#include "core/model/block_share.hpp"

namespace minipipe::core {

double block_flops_per_token(const ModelConfig& model, int sequence) {
  const double width = model.width, mlp_maps = architecture(model).gated_mlp ? 3 : 2;
  const double linear = 2 * width * (2 * width + 2 * kv_width(model) + mlp_maps * hidden_width(model));
  return linear + 2 * width * sequence;  // attention: two products, half of each
}

double flops_per_microbatch(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers) {
  const double rows = shape.rows();
  const double head = layers.head ? 2 * rows * model.width * model.vocab : 0.0;
  return 3 * (layers.blocks * rows * block_flops_per_token(model, shape.sequence) + head);
}

double flops_per_microbatch(const ModelConfig& model, const TrainShape& shape) {
  return flops_per_microbatch(model, shape, {true, 0, model.layers, true});
}

double active_flops_per_microbatch(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers,
                                   const ReplicaOptions& replication) {
  const std::vector<BlockShare> shares = block_shares(model, layers, replication);
  if (holds_everything(shares)) return flops_per_microbatch(model, shape, layers);
  const double rows = shape.rows(), width = model.width;
  const double scores = 2 * width * shape.sequence;
  const double feature = 2 * width * (architecture(model).gated_mlp ? 3 : 2);  // of the MLP's hidden ones
  const double projections = block_flops_per_token(model, shape.sequence) - scores - feature * hidden_width(model);
  StageLayers without_blocks = layers;
  without_blocks.blocks = 0;
  double flops = flops_per_microbatch(model, shape, without_blocks);
  for (const BlockShare& share : shares) {
    // Forward and input gradient, then the weight gradient. The products of attention have two input gradients instead.
    if (share.attention) flops += rows * ((share.attention_trained ? 3 : 2) * projections + 3 * scores);
    if (!share.mlp) continue;
    const int computed = share.features > 0 ? share.features : hidden_width(model);
    int trained = share.mlp_trained ? computed : 0;
    if (!share.trained_features.empty()) {
      trained = 0;
      for (const FeatureRun& run : share.trained_features) trained += run.count;
    }
    flops += rows * (2 * computed + trained) * feature;
  }
  return flops;
}

GemmShape largest_hidden_gemm(const ModelConfig& model, const TrainShape& shape) {
  return {shape.rows(), hidden_width(model), model.width};
}

}  // namespace minipipe::core
