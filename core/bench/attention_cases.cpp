#include "core/bench/branches.hpp"
#include "core/bench/kernel_case.hpp"
#include "core/kernels/attention.hpp"

namespace minipipe::core {

std::vector<KernelCase> attention_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const ModelConfig& model = shape.model;
  if (!branches_of(model).attention) return {};
  const std::int64_t rows = shape.rows(), width = model.width, keys = kv_width(model);
  const AttentionShape attention{shape.train.microbatch_size, shape.train.sequence, model.heads, kv_heads(model)};
  const std::int64_t features = width + 2 * keys;
  const auto qkv = random_matrix(space, rows, features), gradient = random_matrix(space, rows, features);
  const auto out = random_matrix(space, rows, width), out_gradient = random_matrix(space, rows, width);
  const auto logsumexp = random_vector(space, rows * model.heads);
  const Dropout dropout{model.dropout, shape.seed, 1, 0};
  const auto parts = [=](const OwnedMatrix<float>& matrix) {
    const Matrix<float> view = matrix;
    return Qkv<float>{columns_of(view, 0, width), columns_of(view, width, keys), columns_of(view, width + keys, keys)};
  };
  KernelCase forward;
  forward.name = "attention::forward";
  forward.shape = shape_text({attention.batch, attention.sequence, attention.heads, head_size(model)});
  forward.limit = Limit::gemm;
  // Scores and context, half of each: 2 x 2 T C / 2 per row.
  forward.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(width) * shape.train.sequence;
  forward.working_set = forward.bytes = static_cast<double>(4 * rows * (features + width + model.heads));
  forward.run = [=] { attention_forward<float>(space, out, logsumexp, parts(qkv), attention, dropout); };
  KernelCase backward = forward;
  backward.name = "attention::backward";
  backward.flops = 2 * forward.flops;
  backward.working_set = backward.bytes = static_cast<double>(4 * rows * (2 * features + 2 * width + model.heads));
  backward.run = [=] {
    attention_backward<float>(space, parts(gradient), out_gradient, parts(qkv), out, logsumexp, attention, dropout);
  };
  // The backward needs the sums of this forward.
  forward.run();
  return {forward, backward};
}

}  // namespace minipipe::core
