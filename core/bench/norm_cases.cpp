#include "core/bench/kernel_case.hpp"
#include "core/kernels/layer_norm.hpp"
#include "core/kernels/rms_norm.hpp"
#include "core/model/layer_context.hpp"

namespace minipipe::core {

std::vector<KernelCase> norm_cases(const ExecutionSpace& space, const BenchShape& shape) {
  const std::int64_t rows = shape.rows(), width = shape.model.width;
  const bool rms = architecture(shape.model).rms_norm;
  const auto input = random_matrix(space, rows, width), out = random_matrix(space, rows, width);
  const auto gradient = random_matrix(space, rows, width);
  const auto gamma = random_vector(space, width), beta = random_vector(space, width);
  const auto gamma_gradient = random_vector(space, width), beta_gradient = random_vector(space, width);
  const OwnedVector<float> mean("minipipe::bench::mean", rows), rstd("minipipe::bench::rstd", rows);
  const auto epsilon = static_cast<float>(norm_epsilon);

  std::vector<KernelCase> cases;
  // `arrays`: of rows x width that are moved; `distinct`: different ones.
  const auto add = [&](const std::string& name, bool used, std::int64_t arrays, std::int64_t distinct,
                       std::function<void()> run) {
    KernelCase c;
    c.name = name;
    c.shape = shape_text({rows, width});
    c.used = used;
    c.bytes = static_cast<double>(4 * arrays * rows * width);
    c.working_set = static_cast<double>(4 * distinct * rows * width);
    c.run = std::move(run);
    cases.push_back(std::move(c));
  };
  const auto forward = [=] { layer_norm_forward<float>(space, out, mean, rstd, input, gamma, beta, epsilon); };
  // The backwards need a forward's mean and deviation; RMSNorm's is as good as any.
  forward();
  add("layer_norm::forward", !rms, 2, 2, forward);
  add("layer_norm::backward_input", !rms, 4, 3,
      [=] { layer_norm_backward_input<float>(space, out, gradient, input, mean, rstd, gamma, true); });
  add("layer_norm::backward_parameters", !rms, 2, 2,
      [=] { layer_norm_backward_parameters<float>(space, gamma_gradient, beta_gradient, gradient, input, mean, rstd); });
  add("rms_norm::forward", rms, 2, 2, [=] { rms_norm_forward<float>(space, out, rstd, input, gamma, epsilon); });
  add("rms_norm::backward_input", rms, 4, 3,
      [=] { rms_norm_backward_input<float>(space, out, gradient, input, rstd, gamma, true); });
  add("rms_norm::backward_parameters", rms, 2, 2,
      [=] { rms_norm_backward_parameters<float>(space, gamma_gradient, gradient, input, rstd); });
  return cases;
}

}  // namespace minipipe::core
