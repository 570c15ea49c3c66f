#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/model/flops.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/model/outcome.hpp"
#include "unit_tests/core/model/random_model.hpp"
#include "unit_tests/core/model/reference_llama.hpp"

namespace minipipe::core::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::map<std::string, std::vector<double>> random_parameters(const ModelConfig& model) {
  std::map<std::string, std::vector<double>> all;
  for (const ParameterEntry& entry : parameter_list(model)) {
    // Rounded to float, so that both precisions have the same values.
    for (const double value : random_values(entry)) all[entry.name].push_back(static_cast<float>(value));
  }
  return all;
}

std::vector<double> reference_losses(const ModelConfig& model, const TrainShape& shape, HashedTokens& source,
                                     std::int64_t microbatch) {
  const ReferenceLlama reference(model, random_parameters(model));
  std::vector<std::int32_t> tokens(shape.rows()), targets(shape.rows());
  source.batch(microbatch, tokens.data(), targets.data());
  std::vector<double> losses;
  for (int b = 0; b < shape.microbatch_size; ++b) {
    const auto part = [&](const std::vector<std::int32_t>& all) {
      return std::vector<std::int32_t>(all.begin() + b * shape.sequence, all.begin() + (b + 1) * shape.sequence);
    };
    const auto mine = reference.losses(part(tokens), part(targets));
    losses.insert(losses.end(), mine.begin(), mine.end());
  }
  return losses;
}

// Heads with keys of their own, shared by two, and one for all; one case crosses an attention tile.
std::vector<KokkosStageOptions> cases() {
  std::vector<KokkosStageOptions> all(4, small_llama());
  all[1].model.kv_heads = 0;
  all[2].model.kv_heads = 1;
  all[2].model.tied = true;
  all[3].model = {"llama", 2, 42, 3, 31, 90, false, 0.1, 1, 37};
  all[3].shape = {2, 71};
  return all;
}

TEST(Llama, LossesAreThoseOfPlainLoopsInDouble) {
  for (const KokkosStageOptions& options : cases()) {
    HashedTokens source(options.shape, options.model.vocab);
    DoubleModel model(options.model, options.shape, 1);
    const auto parameters = random_parameters(options.model);
    for (const ParameterEntry& entry : model.entries) {
      DoubleModel::to_device(slice<double>(model.parameters, entry.offset, entry.size), parameters.at(entry.name));
    }
    set_batch(model, source, 3);
    model.context.training = false;
    model.loss();
    const auto expected = reference_losses(options.model, options.shape, source, 3), losses = model.token_losses();
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i) ASSERT_NEAR(losses[i], expected[i], 1e-11) << i;
  }
}

TEST(Llama, LossesOfTheStagesAreThoseOfPlainLoops) {
  for (const KokkosStageOptions& options : cases()) {
    const int stages = options.model.tied ? 1 : 2;
    Pipeline pipeline(options, stages);
    for (const auto& stage : pipeline.stages) {
      ParameterStore& store = stage->parameters();
      for (std::size_t e = 0; e < store.entries().size(); ++e) {
        const auto values = random_values(store.entries()[e]);
        store.set_parameter(e, {values.begin(), values.end()});
      }
    }
    std::vector<float> losses;
    for (int s = 0; s < stages; ++s) {
      pipeline.stages[s]->evaluate(3, pipeline.source, s > 0 ? 0 : -1, s + 1 < stages ? 0 : -1, &losses);
      pipeline.stages[s]->complete_output();
    }
    const auto expected = reference_losses(options.model, options.shape, pipeline.source, 3);
    ASSERT_EQ(losses.size(), expected.size());
    // Some hundred float roundings of values near 10 on the way to a loss.
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(losses[i], expected[i], 1e-4) << i;
  }
}

TEST(Llama, ParametersHaveTheNamesAndShapesOfHuggingFace) {
  const auto list = parameter_list(small_llama().model);
  std::vector<std::string> names;
  for (const auto& entry : list) names.push_back(entry.name);
  ASSERT_EQ(list.size(), 1u + 4 * 9 + 2);
  EXPECT_THAT(std::vector<std::string>(names.begin() + 28, names.end()),
              ElementsAre("model.layers.3.input_layernorm.weight", "model.layers.3.self_attn.q_proj.weight",
                          "model.layers.3.self_attn.k_proj.weight", "model.layers.3.self_attn.v_proj.weight",
                          "model.layers.3.self_attn.o_proj.weight", "model.layers.3.post_attention_layernorm.weight",
                          "model.layers.3.mlp.gate_proj.weight", "model.layers.3.mlp.up_proj.weight",
                          "model.layers.3.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight"));
  EXPECT_EQ(names[0], "model.embed_tokens.weight");
  EXPECT_THAT(list[29].shape, ElementsAre(32, 32));
  EXPECT_THAT(list[30].shape, ElementsAre(16, 32));
  EXPECT_THAT(list[31].shape, ElementsAre(16, 32));
  EXPECT_THAT(list[34].shape, ElementsAre(40, 32));
  EXPECT_THAT(list[36].shape, ElementsAre(32, 40));
  for (std::size_t e = 0; e < list.size(); ++e) {
    EXPECT_EQ(list[e].global_index, static_cast<int>(e));
    EXPECT_EQ(list[e].decay, list[e].shape.size() == 2);
    const bool hidden = list[e].decay && e > 0 && e + 1 < list.size();
    EXPECT_EQ(list[e].hidden_maps, hidden ? 1 : 0) << list[e].name;
  }
  for (const StageLayers& layers : partition_model(small_llama().model, 16, 3)) {
    for (const auto& entry : parameter_list(small_llama().model, layers)) EXPECT_EQ(entry.name, names[entry.global_index]);
  }
}

std::size_t count(const ModelConfig& model) {
  std::size_t sum = 0;
  for (const auto& entry : parameter_list(model)) sum += entry.size;
  return sum;
}

// Published sizes: TinyLlama 1.1B (arXiv 2401.02385) and LLaMA 7B (arXiv 2302.13971).
TEST(Llama, ParametersOfPublishedModelsAddUp) {
  EXPECT_EQ(count({"llama", 22, 2048, 32, 32000, 2048, false, 0.0, 4}), 1100048384u);
  EXPECT_EQ(count({"llama", 32, 4096, 32, 32000, 2048, false, 0.0}), 6738415616u);
}

TEST(Llama, HiddenWidthFollowsTheRuleOfThePublishedCode) {
  ModelConfig model{"llama", 1, 4096, 32, 32000, 2048, false, 0.0};
  EXPECT_EQ(hidden_width(model), 11008);
  model.width = 768;
  EXPECT_EQ(hidden_width(model), 2048);
  model.hidden = 100;
  EXPECT_EQ(hidden_width(model), 100);
  model = {"gpt2", 1, 768, 12, 50257, 1024, true, 0.0};
  EXPECT_EQ(hidden_width(model), 3072);
}

TEST(Llama, FlopsAreThoseOfTheForwardProductsTimesThree) {
  const ModelConfig model = small_llama().model;
  const double rows = 32, width = 32, kv = 16, hidden = 40, sequence = 16;
  const double linear = 2 * rows * width * (2 * width + 2 * kv + 3 * hidden);
  const double attention = 2 * 4 * (2 * sequence * sequence * 8) * 2 / 2;  // batch, heads, two products, half of each
  EXPECT_DOUBLE_EQ(flops_per_microbatch(model, {2, 16}, {false, 1, 1, false}), 3 * (linear + attention));
  EXPECT_DOUBLE_EQ(layer_costs(model, 16).head, 2 * rows * width * 29 / (linear + attention));
  EXPECT_EQ(largest_hidden_gemm(model, {2, 16}).n, 40);
}

TEST(Llama, LearnsARepeatedMicrobatchWithEachOptimizer) {
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::muon}) {
    KokkosStageOptions options = small_llama();
    options.model.dropout = 0;
    options.window = 1;
    options.optimizer = kind;
    options.learning_rate = {1e-2, 1e-2, 2, 60};
    Pipeline pipeline(options, 2);
    for (int u = 0; u < 60; ++u) {
      pipeline.forward(0);
      pipeline.backward(0);
      for (const auto& stage : pipeline.stages) stage->update(u);
    }
    const auto losses = pipeline.take_losses();
    EXPECT_NEAR(losses.front(), std::log(29.0), 0.1);
    EXPECT_LT(losses.back(), 0.5);
  }
}

TEST(Llama, MuonGivesTheSameOnAnyPartition) {
  KokkosStageOptions options = small_llama();
  options.optimizer = OptimizerKind::muon;
  const Outcome one = train(options, 1, {}, 2);
  expect_same(one, train(options, 3, {}, 2));
  EXPECT_TRUE(one.second_moments.at("model.layers.1.mlp.gate_proj.weight").empty());
  EXPECT_FALSE(one.second_moments.at("lm_head.weight").empty());
}

TEST(Llama, SaysWhatIsWrong) {
  ModelConfig model = small_llama().model;
  EXPECT_EQ(complaint(model), "");
  model.kv_heads = 3;
  EXPECT_THAT(complaint(model), HasSubstr("model.kv_heads = 3: must divide model.heads = 4"));
  model.kv_heads = -1;
  EXPECT_THAT(complaint(model), HasSubstr("model.kv_heads"));
  model.kv_heads = 0;
  model.heads = 32;
  EXPECT_THAT(complaint(model), HasSubstr("model.heads = 32: rotary positions need an even head size"));
  model = small_options().model;
  model.kv_heads = 2;
  EXPECT_THAT(complaint(model), HasSubstr("model.kv_heads = 2: gpt2"));
  model.kv_heads = 4;
  EXPECT_EQ(complaint(model), "");
}

}  // namespace
}  // namespace minipipe::core::test
