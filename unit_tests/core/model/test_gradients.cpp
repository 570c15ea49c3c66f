#include <gtest/gtest.h>

#include <cmath>

#include "unit_tests/core/model/random_model.hpp"

namespace minipipe::core::test {
namespace {

struct Case {
  ModelConfig model{"gpt2", 2, 12, 3, 13, 8, false, 0.2};
  TrainShape shape{2, 7};
  Recompute recompute = Recompute::none;
};

// Central differences along one random direction for each tensor. The truncation error is O(step^2), the rounding error
// epsilon loss / step; with step 1e-5 both are near 1e-10, four orders below the derivatives' sizes.
void check_directional_derivatives(const Case& c) {
  DoubleModel model(c.model, c.shape, 3, c.recompute);
  HashedTokens source(c.shape, c.model.vocab);
  set_random(model);
  set_batch(model, source, 4);
  model.loss();
  model.backward();
  for (const ParameterEntry& entry : model.entries) {
    const auto values = slice<double>(model.parameters, entry.offset, entry.size);
    const auto gradient = DoubleModel::to_host(slice<double>(model.gradients, entry.offset, entry.size));
    const auto old = DoubleModel::to_host(values);
    const auto direction = normal(entry.size, 1.0 / std::sqrt(static_cast<double>(entry.size)), 900 + entry.global_index);
    const double step = 1e-5;
    double expected = 0;
    double norm = 0;
    auto plus = old;
    auto minus = old;
    for (std::size_t i = 0; i < entry.size; ++i) {
      expected += gradient[i] * direction[i];
      norm += gradient[i] * gradient[i];
      plus[i] += step * direction[i];
      minus[i] -= step * direction[i];
    }
    DoubleModel::to_device(values, plus);
    const double above = model.loss();
    DoubleModel::to_device(values, minus);
    const double below = model.loss();
    DoubleModel::to_device(values, old);
    EXPECT_NEAR((above - below) / (2 * step), expected, 1e-8) << entry.name;
    EXPECT_GT(std::sqrt(norm), 1e-5) << entry.name << ": a gradient this small tests nothing";
  }
}

TEST(Gradients, AgreeWithFiniteDifferences) { check_directional_derivatives({}); }

TEST(Gradients, AgreeWithFiniteDifferencesWhenTied) {
  Case c;
  c.model.tied = true;
  check_directional_derivatives(c);
}

TEST(Gradients, AgreeWithFiniteDifferencesForLlama) {
  for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::block}) {
    Case c;
    c.recompute = recompute;
    c.model = {"llama", 2, 12, 3, 13, 8, false, 0.2, 0, 10};
    check_directional_derivatives(c);
    c.model = {"llama", 2, 16, 4, 13, 8, true, 0.0, 2, 10};
    check_directional_derivatives(c);
    c.model.kv_heads = 1;
    check_directional_derivatives(c);
  }
}

TEST(Gradients, AgreeWithFiniteDifferencesForHybrids) {
  for (const Recompute recompute : {Recompute::none, Recompute::attention, Recompute::block}) {
    Case c;
    c.recompute = recompute;
    c.model = small_hybrid("M-#*").model;
    c.model.width = 12;
    c.model.heads = 2;
    c.model.vocab = 13;
    c.model.hidden = 10;
    c.model.expert_hidden = 10;
    c.model.state_head_size = 6;
    c.model.dropout = 0.2;
    check_directional_derivatives(c);
  }
}

TEST(Gradients, AgreeWithFiniteDifferencesWithAnotherHiddenWidth) {
  Case c;
  c.model.hidden = 7;
  check_directional_derivatives(c);
}

void check_stage_against_double(const ModelConfig& of) {
  KokkosStageOptions options = small_options();
  options.model = of;
  options.window = 1;
  Pipeline pipeline(options, 2);
  DoubleModel model(options.model, options.shape, options.seed);
  model.context.balance_scale = options.model.balance_loss;
  set_batch(model, pipeline.source, 2);
  const auto parameters = pipeline.read(&ParameterStore::parameter);
  for (const ParameterEntry& entry : model.entries) {
    const auto& values = parameters.at(entry.name);
    DoubleModel::to_device(slice<double>(model.parameters, entry.offset, entry.size), {values.begin(), values.end()});
  }
  const double loss = model.loss();
  model.backward();
  pipeline.forward(2);
  pipeline.backward(2);
  const auto losses = pipeline.take_losses();
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NEAR(losses[0], loss, 1e-5);
  const auto gradients = pipeline.read(&ParameterStore::gradient);
  for (const ParameterEntry& entry : model.entries) {
    const auto expected = DoubleModel::to_host(slice<double>(model.gradients, entry.offset, entry.size));
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    // A few hundred float roundings on the way, each of relative size 6e-8 of the tensor's scale.
    for (std::size_t i = 0; i < entry.size; ++i) {
      ASSERT_NEAR(gradients.at(entry.name)[i], expected[i], 1e-4 * largest + 1e-9) << entry.name << " " << i;
    }
  }
}

TEST(Gradients, OfTheStageAgreeWithTheLayersInDouble) {
  check_stage_against_double(small_options().model);
  check_stage_against_double(small_llama().model);
  check_stage_against_double(small_hybrid().model);
}

TEST(Gradients, OfATiedHeadAreTheSumOfBoth) {
  KokkosStageOptions options = small_options();
  options.window = 1;
  Pipeline untied(options, 1);
  options.model.tied = true;
  Pipeline tied(options, 1);
  ParameterStore& store = untied.stages[0]->parameters();
  store.set_parameter(store.find("lm_head.weight"), store.parameter(store.find("transformer.wte.weight")));
  for (Pipeline* pipeline : {&untied, &tied}) {
    pipeline->forward(0);
    pipeline->backward(0);
  }
  EXPECT_EQ(untied.take_losses(), tied.take_losses());
  const auto apart = untied.read(&ParameterStore::gradient);
  const auto together = tied.read(&ParameterStore::gradient);
  EXPECT_EQ(together.count("lm_head.weight"), 0u);
  const auto& embedding = apart.at("transformer.wte.weight");
  const auto& head = apart.at("lm_head.weight");
  double largest = 0;
  for (std::size_t i = 0; i < head.size(); ++i) {
    largest = std::max({largest, std::abs(static_cast<double>(head[i])), std::abs(static_cast<double>(embedding[i]))});
  }
  for (std::size_t i = 0; i < head.size(); ++i) {  // the same terms, added in another order
    ASSERT_NEAR(together.at("transformer.wte.weight")[i], embedding[i] + head[i], 1e-5 * largest) << i;
  }
  EXPECT_EQ(apart.at("transformer.h.2.mlp.c_fc.weight"), together.at("transformer.h.2.mlp.c_fc.weight"));
}

}  // namespace
}  // namespace minipipe::core::test
