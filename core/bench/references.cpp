#include "core/bench/references.hpp"

#include <algorithm>
#include <cmath>

#include "core/bench/branches.hpp"
#include "core/kernels/elementwise.hpp"
#include "core/linalg/gemm.hpp"

namespace minipipe::core {

namespace {

double operations(const GemmShape& g) {
  return 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
}

double elongation(const GemmShape& g) {
  const auto [least, most] = std::minmax({g.m, g.n, g.k});
  return static_cast<double>(most) / static_cast<double>(least);
}

}  // namespace

std::vector<GemmShape> step_gemms(const ModelConfig& model, const TrainShape& shape) {
  const std::int64_t rows = shape.rows(), width = model.width, hidden = hidden_width(model), inner = state_width(model);
  const Branches has = branches_of(model);
  std::vector<GemmShape> result;
  const auto add = [&](std::int64_t tokens, std::int64_t out, std::int64_t in) {
    result.push_back({tokens, out, in});
    result.push_back({tokens, in, out});
    result.push_back({out, in, tokens});
  };
  if (has.attention) {
    if (architecture(model).fused_qkv) {
      add(rows, 3 * width, width);
    } else {
      add(rows, width, width);
      add(rows, kv_width(model), width);
    }
    add(rows, width, width);
  }
  if (has.mlp) {
    add(rows, hidden, width);
    add(rows, width, hidden);
  }
  if (has.experts) {
    // An expert's fair share of the rows.
    const std::int64_t share = std::max<std::int64_t>(1, rows * model.expert_choices / model.experts);
    add(rows, model.experts, width);
    add(share, expert_width(model), width);
    add(share, width, expert_width(model));
  }
  if (has.state_space) {
    add(rows, inner, width);
    add(rows, conv_features(model), width);
    add(rows, state_heads(model), width);
    add(rows, width, inner);
  }
  add(rows, model.vocab, width);
  return result;
}

GemmShape cubic_gemm(const ModelConfig& model, const TrainShape& shape) {
  const auto gemms = step_gemms(model, shape);
  return *std::max_element(gemms.begin(), gemms.end(), [](const GemmShape& a, const GemmShape& b) {
    const bool a_cubic = elongation(a) <= 2, b_cubic = elongation(b) <= 2;
    if (a_cubic != b_cubic) return b_cubic;
    return a_cubic ? operations(a) < operations(b) : elongation(a) > elongation(b);
  });
}

void References::measure_gemms(const ModelConfig& model, const TrainShape& shape, bool with_bf16) {
  const bool first = gemms_.empty();
  if (first) gemms_ = {{"hidden", largest_hidden_gemm(model, shape)}, {"cubic", cubic_gemm(model, shape)}};
  if (first && with_bf16) gemms_.push_back({"bf16", largest_hidden_gemm(model, shape), true});
  for (GemmReference& gemm : gemms_) {
    const auto measured = gemm.bf16 ? measure_gemm_rate<bf16> : measure_gemm_rate<float>;
    const double rate = measured(space_, gemm.shape.m, gemm.shape.n, gemm.shape.k);
    if (!first) gemm.drift = std::abs(rate - gemm.gflops) / std::max(rate, gemm.gflops);
    gemm.gflops = std::max(rate, gemm.gflops);
  }
}

double References::copy_rate(std::int64_t bytes) {
  // Kernels that touch a few bytes more are not another case.
  const auto floats = std::max<std::int64_t>(16, (bytes / 2 / static_cast<std::int64_t>(sizeof(float)) + 15) / 16 * 16);
  const std::int64_t total = 2 * floats * static_cast<std::int64_t>(sizeof(float));
  const auto found = copies_.find(total);
  if (found != copies_.end()) return found->second;
  const OwnedVector<float> from("minipipe::bench::copy_from", floats), to("minipipe::bench::copy_to", floats);
  fill<float>(space_, from, 1.25f);
  const Timing timing = measure(space_, repeat_, [&] { copy<float>(space_, to, from); });
  return copies_[total] = static_cast<double>(total) / timing.best * 1e-9;
}

}  // namespace minipipe::core
