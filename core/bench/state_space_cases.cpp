#include "core/bench/branches.hpp"
#include "core/bench/kernel_case.hpp"
#include "core/kernels/causal_conv.hpp"
#include "core/kernels/elementwise.hpp"
#include "core/kernels/rms_norm.hpp"
#include "core/kernels/selective_scan.hpp"
#include "core/kernels/swiglu.hpp"
#include "core/model/layer_context.hpp"

namespace minipipe::core {

namespace {

KernelCase copy_case(const std::string& name, std::int64_t rows, std::int64_t columns, std::int64_t arrays,
                     std::int64_t distinct, std::function<void()> run) {
  KernelCase c;
  c.name = name;
  c.shape = shape_text({rows, columns});
  c.bytes = static_cast<double>(4 * arrays * rows * columns);
  c.working_set = static_cast<double>(4 * distinct * rows * columns);
  c.run = std::move(run);
  return c;
}

// Rows x (x, B and C); the few weights are not counted.
std::vector<KernelCase> conv_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const std::int64_t rows = shape.rows(), features = conv_features(shape.model), taps = shape.model.conv_width;
  const ConvShape conv{shape.train.microbatch_size, shape.train.sequence};
  const auto x = random_matrix(space, rows, features), out = random_matrix(space, rows, features);
  const auto x_gradient = random_matrix(space, rows, features), gradient = random_matrix(space, rows, features);
  const auto weight = random_matrix(space, features, taps), weight_gradient = random_matrix(space, features, taps);
  const OwnedVector<float> bias("minipipe::bench::bias", features), bias_gradient("minipipe::bench::gradient", features);
  // The gradient is replaced by the one behind SiLU, as in a step. Where all is far above zero, SiLU's slope is one and the
  // gradient stays as it is, however often.
  fill<float>(space, bias, 50.0f);
  const auto read = [](const Matrix<float>& matrix) { return columns_of<const float>(matrix); };
  return {copy_case("causal_conv::forward", rows, features, 2, 2,
                    [=] { causal_conv_forward<float>(space, out, read(x), weight, bias, conv); }),
          copy_case("causal_conv::backward_input", rows, features, 4, 3,
                    [=] {
                      causal_conv_backward_input<float>(space, columns_of<float>(x_gradient), gradient, gradient, read(x),
                                                        weight, bias, conv);
                    }),
          copy_case("causal_conv::backward_parameters", rows, features, 2, 2, [=] {
            causal_conv_backward_parameters<float>(space, weight_gradient, bias_gradient, gradient, read(x), conv);
          })};
}

// The sums over sequences for the parameters' gradients are too small to be measured.
std::vector<KernelCase> scan_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const ModelConfig& model = shape.model;
  const std::int64_t rows = shape.rows(), inner = state_width(model), features = conv_features(model);
  const std::int64_t heads = state_heads(model), shared = model.state_groups * model.state_size;
  const ScanShape scan{shape.train.microbatch_size, shape.train.sequence, heads,
                       model.state_head_size,       model.state_groups,   model.state_size};
  const auto convolved = random_matrix(space, rows, features), dt = random_matrix(space, rows, heads);
  const auto convolved_gradient = random_matrix(space, rows, features), dt_gradient = random_matrix(space, rows, heads);
  const auto y = random_matrix(space, rows, inner), y_gradient = random_matrix(space, rows, inner);
  const auto a_log = random_vector(space, heads), d = random_vector(space, heads), dt_bias = random_vector(space, heads);
  const OwnedVector<float> states("minipipe::bench::states", scan_states(scan)), sums("minipipe::bench::sums", scan_sums(scan)),
      workspace("minipipe::bench::workspace", scan_workspace(scan));
  const auto inputs = [=](const Matrix<float>& of, const Matrix<float>& time) {
    return ScanInputs<float>{columns_of(of, 0, inner), columns_of(time), columns_of(of, inner, shared),
                             columns_of(of, inner + shared, shared)};
  };
  const std::int64_t read = rows * (features + heads) + scan_states(scan);

  KernelCase forward;
  forward.name = "selective_scan::forward";
  forward.shape = shape_text({scan.batch, scan.sequence, heads, scan.head_size, scan.state});
  forward.limit = Limit::gemm;
  // The outer product with B and the product with C: as core/model/flops counts them.
  forward.flops = 4.0 * static_cast<double>(rows) * static_cast<double>(inner) * model.state_size;
  forward.working_set = forward.bytes = static_cast<double>(4 * (read + rows * inner));
  forward.run = [=] {
    selective_scan_forward<float>(space, y, states, inputs(convolved, dt), ScanParameters<float>{a_log, d, dt_bias}, scan);
  };
  KernelCase backward = forward;
  backward.name = "selective_scan::backward_input";
  backward.flops = 2 * forward.flops;
  backward.working_set = backward.bytes =
      static_cast<double>(4 * (read + rows * inner + rows * (features + heads) + scan_sums(scan)));
  backward.run = [=] {
    selective_scan_backward_input<float>(space, inputs(convolved_gradient, dt_gradient), sums, y_gradient,
                                         inputs(convolved, dt), ScanParameters<float>{a_log, d, dt_bias}, states, workspace,
                                         scan);
  };
  // The backward needs the states of this forward.
  forward.run();
  return {forward, backward};
}

// The gate and the norm behind the scan.
std::vector<KernelCase> gate_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const std::int64_t rows = shape.rows(), inner = state_width(shape.model);
  const auto a = random_matrix(space, rows, inner), b = random_matrix(space, rows, inner);
  const auto c = random_matrix(space, rows, inner), d = random_matrix(space, rows, inner),
             e = random_matrix(space, rows, inner);
  const auto gamma = random_vector(space, inner), gamma_gradient = random_vector(space, inner);
  const OwnedVector<float> rstd("minipipe::bench::rstd", rows);
  const auto norm = [=] { rms_norm_forward<float>(space, c, rstd, a, gamma, static_cast<float>(norm_epsilon)); };
  norm();  // for the backwards
  return {copy_case("swiglu::forward state_space", rows, inner, 3, 3,
                    [=] { swiglu_forward<float>(space, flatten(c), flatten(a), flatten(b)); }),
          copy_case("swiglu::backward state_space", rows, inner, 5, 5,
                    [=] { swiglu_backward<float>(space, flatten(c), flatten(d), flatten(e), flatten(a), flatten(b)); }),
          copy_case("rms_norm::forward state_space", rows, inner, 2, 2, norm),
          copy_case("rms_norm::backward_input state_space", rows, inner, 3, 3,
                    [=] { rms_norm_backward_input<float>(space, c, b, a, rstd, gamma, false); }),
          copy_case("rms_norm::backward_parameters state_space", rows, inner, 2, 2,
                    [=] { rms_norm_backward_parameters<float>(space, gamma_gradient, b, a, rstd); })};
}

}  // namespace

std::vector<KernelCase> state_space_cases(const ExecutionSpace& space, const BenchShape& shape) {
  if (!branches_of(shape.model).state_space) return {};
  std::vector<KernelCase> cases;
  for (const auto build : {conv_cases, scan_cases, gate_cases}) {
    for (KernelCase& c : build(space, shape)) cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace minipipe::core
