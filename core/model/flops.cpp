#include "core/model/flops.hpp"

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

GemmShape largest_hidden_gemm(const ModelConfig& model, const TrainShape& shape) {
  return {shape.rows(), hidden_width(model), model.width};
}

}  // namespace minipipe::core
