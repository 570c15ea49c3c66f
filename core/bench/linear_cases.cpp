#include "core/bench/kernel_case.hpp"
#include "core/model/linear.hpp"

namespace minipipe::core {

// Without biases, whose kernels are cases of their own.
std::vector<KernelCase> linear_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const ModelConfig& model = shape.model;
  const std::int64_t rows = shape.rows();
  std::vector<KernelCase> cases;
  const auto add = [&](const std::string& layer, std::int64_t out, std::int64_t in) {
    const auto input = random_matrix(space, rows, in), weight = random_matrix(space, out, in);
    const auto output = random_matrix(space, rows, out);
    KernelCase common;
    common.limit = Limit::gemm;
    common.shape = shape_text({rows, out, in});
    common.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
    common.working_set = common.bytes = static_cast<double>(4 * (rows * (in + out) + out * in));
    common.name = "linear::forward " + layer;
    common.run = [=] { linear_forward<float>(space, output, input, weight, {}); };
    cases.push_back(common);
    common.name = "linear::backward_input " + layer;
    common.run = [=] { linear_backward_input<float>(space, input, output, weight); };
    cases.push_back(common);
    common.name = "linear::backward_weight " + layer;
    // The gradient is added to.
    common.bytes += static_cast<double>(4 * out * in);
    common.run = [=] { linear_backward_weight<float>(space, weight, {}, output, input); };
    cases.push_back(common);
  };
  if (architecture(model).fused_qkv) {
    add("qkv", 3 * model.width, model.width);
  } else {
    add("q", model.width, model.width);
    add("kv", kv_width(model), model.width);
  }
  add("projection", model.width, model.width);
  add("up", hidden_width(model), model.width);
  add("down", model.width, hidden_width(model));
  add("head", model.vocab, model.width);
  return cases;
}

}  // namespace minipipe::core
