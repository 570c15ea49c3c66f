#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/model/model_config.hpp"

namespace minipipe::core::test {

// LLaMA's forward in plain loops over doubles, written from the papers' formulas and sharing nothing with the kernels.
// Parameters by their Hugging Face name, matrices [out_features, in_features].
class ReferenceLlama {
 public:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  ReferenceLlama(const ModelConfig& model, std::map<std::string, std::vector<double>> parameters)
      : model_(model), parameters_(std::move(parameters)) {}

  // The loss of each token of one sequence, in nats.
  Row losses(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets) const {
    Rows x;
    for (const std::int32_t token : tokens) {
      const auto& table = parameters_.at("model.embed_tokens.weight");
      x.emplace_back(table.begin() + token * model_.width, table.begin() + (token + 1) * model_.width);
    }
    for (int layer = 0; layer < model_.layers; ++layer) {
      const std::string name = "model.layers." + std::to_string(layer) + ".";
      const Rows a = attention(name + "self_attn.", norm(name + "input_layernorm", x));
      for (std::size_t t = 0; t < x.size(); ++t) add(x[t], a[t]);
      const Rows normed = norm(name + "post_attention_layernorm", x);
      for (std::size_t t = 0; t < x.size(); ++t) {
        Row hidden = linear(name + "mlp.gate_proj", normed[t]);
        const Row up = linear(name + "mlp.up_proj", normed[t]);
        for (std::size_t f = 0; f < hidden.size(); ++f) hidden[f] = hidden[f] / (1 + std::exp(-hidden[f])) * up[f];
        add(x[t], linear(name + "mlp.down_proj", hidden));
      }
    }
    x = norm("model.norm", x);
    Row result;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row logits = linear(model_.tied ? "model.embed_tokens" : "lm_head", x[t]);
      double total = 0;
      for (const double logit : logits) total += std::exp(logit);
      result.push_back(std::log(total) - logits[targets[t]]);
    }
    return result;
  }

 private:
  static void add(Row& to, const Row& values) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += values[i];
  }

  Row linear(const std::string& name, const Row& x) const {
    const auto& weight = parameters_.at(name + ".weight");
    Row y(weight.size() / x.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
    }
    return y;
  }

  Rows norm(const std::string& name, Rows x) const {
    const auto& weight = parameters_.at(name + ".weight");
    for (Row& row : x) {
      double squares = 0;
      for (const double value : row) squares += value * value;
      const double scale = 1 / std::sqrt(squares / static_cast<double>(row.size()) + 1e-5);
      for (std::size_t c = 0; c < row.size(); ++c) row[c] *= scale * weight[c];
    }
    return x;
  }

  // Complex form: features i and i + D/2 of a head are one number, multiplied by exp(i angle).
  Row rotate(Row row, std::size_t position) const {
    const std::size_t depth = model_.width / model_.heads, half = depth / 2;
    for (std::size_t head = 0; head < row.size(); head += depth) {
      for (std::size_t i = 0; i < half; ++i) {
        const double frequency = std::pow(10000.0, -static_cast<double>(2 * i) / static_cast<double>(depth));
        const double angle = static_cast<double>(position) * frequency;
        const double a = row[head + i], b = row[head + i + half];
        row[head + i] = a * std::cos(angle) - b * std::sin(angle);
        row[head + i + half] = a * std::sin(angle) + b * std::cos(angle);
      }
    }
    return row;
  }

  Rows attention(const std::string& name, const Rows& x) const {
    const int depth = model_.width / model_.heads, groups = model_.kv_heads > 0 ? model_.kv_heads : model_.heads;
    Rows keys, values, out;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row query = rotate(linear(name + "q_proj", x[t]), t);
      keys.push_back(rotate(linear(name + "k_proj", x[t]), t));
      values.push_back(linear(name + "v_proj", x[t]));
      Row mixed(model_.width);
      for (int h = 0; h < model_.heads; ++h) {
        const int shared = h / (model_.heads / groups) * depth;
        Row p;
        double total = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (int d = 0; d < depth; ++d) score += query[h * depth + d] * keys[s][shared + d];
          p.push_back(std::exp(score / std::sqrt(static_cast<double>(depth))));
          total += p.back();
        }
        for (std::size_t s = 0; s <= t; ++s) {
          for (int d = 0; d < depth; ++d) mixed[h * depth + d] += p[s] / total * values[s][shared + d];
        }
      }
      out.push_back(linear(name + "o_proj", mixed));
    }
    return out;
  }

  ModelConfig model_;
  std::map<std::string, std::vector<double>> parameters_;
};

}  // namespace minipipe::core::test
