#include "core/model/flops.hpp"

namespace minipipe::core {

double flops_per_microbatch(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers) {
  const double rows = shape.rows();
  const double width = model.width;
  const double linear = 2 * rows * 12 * width * width;         // 3 + 1 + 4 + 4 squares of the width
  const double attention = 2 * rows * shape.sequence * width;  // two products, half of each
  const double head = layers.head ? 2 * rows * width * model.vocab : 0.0;
  return 3 * (layers.blocks * (linear + attention) + head);
}

double flops_per_microbatch(const ModelConfig& model, const TrainShape& shape) {
  return flops_per_microbatch(model, shape, {true, 0, model.layers, true});
}

GemmShape largest_hidden_gemm(const ModelConfig& model, const TrainShape& shape) {
  return {shape.rows(), std::int64_t{4} * model.width, model.width};
}

}  // namespace minipipe::core
