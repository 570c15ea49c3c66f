#include "core/bench/branches.hpp"
#include "core/bench/kernel_case.hpp"
#include "core/model/linear.hpp"

namespace minipipe::core {

namespace {

template <class T>
std::vector<KernelCase> cases_of(const ExecutionSpace& space, const BenchShape& shape) {
  constexpr auto element = static_cast<std::int64_t>(sizeof(T)), wide = static_cast<std::int64_t>(sizeof(float));
  const ModelConfig& model = shape.model;
  const std::int64_t rows = shape.rows();
  std::vector<KernelCase> cases;
  const auto add = [&](const std::string& layer, std::int64_t out, std::int64_t in) {
    const auto input = random_values<T>(space, rows, in), weight = random_values<T>(space, out, in);
    const auto output = random_values<T>(space, rows, out);
    const auto gradient = random_matrix(space, out, in);
    KernelCase common;
    common.limit = std::is_same_v<T, bf16> ? Limit::gemm_bf16 : Limit::gemm;
    common.shape = shape_text({rows, out, in});
    common.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
    common.working_set = common.bytes = static_cast<double>(element * (rows * (in + out) + out * in));
    common.name = "linear::forward " + layer;
    common.run = [=] { linear_forward<T>(space, output, input, weight, {}); };
    cases.push_back(common);
    common.name = "linear::backward_input " + layer;
    common.run = [=] { linear_backward_input<T>(space, input, output, weight); };
    cases.push_back(common);
    common.name = "linear::backward_weight " + layer;
    // The gradient is added to.
    common.working_set += static_cast<double>((wide - element) * out * in);
    common.bytes += static_cast<double>((2 * wide - element) * out * in);
    common.run = [=] { linear_backward_weight<T>(space, gradient, {}, output, input); };
    cases.push_back(common);
  };
  const Branches has = branches_of(model);
  if (has.attention) {
    if (architecture(model).fused_qkv) {
      add("qkv", 3 * model.width, model.width);
    } else {
      add("q", model.width, model.width);
      add("kv", kv_width(model), model.width);
    }
    add("projection", model.width, model.width);
  }
  if (has.mlp) {
    add("up", hidden_width(model), model.width);
    add("down", model.width, hidden_width(model));
  }
  // The experts' own products are with their other cases.
  if (has.experts) add("router", model.experts, model.width);
  if (has.state_space) {
    add("state_space_z", state_width(model), model.width);
    add("state_space_xbc", conv_features(model), model.width);
    add("state_space_dt", state_heads(model), model.width);
    add("state_space_out", model.width, state_width(model));
  }
  add("head", model.vocab, model.width);
  return cases;
}

}  // namespace

// Without biases, whose kernels are cases of their own.
std::vector<KernelCase> linear_cases(const ExecutionSpace& space, const BenchShape& shape) {
  return shape.bf16 ? cases_of<bf16>(space, shape) : cases_of<float>(space, shape);
}

}  // namespace minipipe::core
