#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/model/flops.hpp"
#include "core/model/parameter_store.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ModelConfig small{"gpt2", 4, 32, 4, 29, 24, false, 0.0};

TEST(Parameters, HaveTheNamesAndShapesOfHuggingFace) {
  const auto list = parameter_list(small);
  std::vector<std::string> names;
  for (const auto& entry : list) names.push_back(entry.name);
  ASSERT_EQ(list.size(), 2u + 4 * 12 + 3);
  EXPECT_EQ(names[0], "transformer.wte.weight");
  EXPECT_EQ(names[1], "transformer.wpe.weight");
  EXPECT_THAT(
      std::vector<std::string>(names.begin() + 38, names.end()),
      ElementsAre("transformer.h.3.ln_1.weight", "transformer.h.3.ln_1.bias", "transformer.h.3.attn.c_attn.weight",
                  "transformer.h.3.attn.c_attn.bias", "transformer.h.3.attn.c_proj.weight", "transformer.h.3.attn.c_proj.bias",
                  "transformer.h.3.ln_2.weight", "transformer.h.3.ln_2.bias", "transformer.h.3.mlp.c_fc.weight",
                  "transformer.h.3.mlp.c_fc.bias", "transformer.h.3.mlp.c_proj.weight", "transformer.h.3.mlp.c_proj.bias",
                  "transformer.ln_f.weight", "transformer.ln_f.bias", "lm_head.weight"));
  EXPECT_THAT(list[0].shape, ElementsAre(29, 32));
  EXPECT_THAT(list[1].shape, ElementsAre(24, 32));
  EXPECT_THAT(list[40].shape, ElementsAre(96, 32));
  EXPECT_THAT(list[42].shape, ElementsAre(32, 32));
  EXPECT_THAT(list[46].shape, ElementsAre(128, 32));
  EXPECT_THAT(list[48].shape, ElementsAre(32, 128));
  EXPECT_THAT(list.back().shape, ElementsAre(29, 32));
  for (std::size_t e = 0; e < list.size(); ++e) {
    EXPECT_EQ(list[e].global_index, static_cast<int>(e));
    EXPECT_EQ(list[e].decay, list[e].shape.size() == 2);
    EXPECT_EQ(list[e].offset % 16, 0u);
    if (e > 0) {
      EXPECT_GE(list[e].offset, list[e - 1].offset + list[e - 1].size);
    }
  }
}

// 124 439 808 parameters: the published size of GPT-2 small, tied.
TEST(Parameters, OfGpt2SmallAddUp) {
  std::size_t count = 0;
  for (const auto& entry : parameter_list({"gpt2", 12, 768, 12, 50257, 1024, true, 0.0})) count += entry.size;
  EXPECT_EQ(count, 124439808u);
}

TEST(Parameters, StartTheSameOnAnyPartition) {
  const ExecutionSpace space;
  const ParameterStore whole(space, small, {true, 0, 4, true}, 9);
  for (const StageLayers& layers : partition_model(small, 16, 3)) {
    const ParameterStore part(space, small, layers, 9);
    for (std::size_t e = 0; e < part.entries().size(); ++e) {
      const int same = whole.find(part.entries()[e].name);
      ASSERT_EQ(same, part.entries()[e].global_index);
      EXPECT_EQ(part.parameter(e), whole.parameter(same));
    }
  }
  const ParameterStore other(space, small, {true, 0, 4, true}, 10);
  EXPECT_NE(whole.parameter(0), other.parameter(0));
  EXPECT_NE(whole.parameter(whole.find("transformer.h.0.attn.c_attn.weight")),
            whole.parameter(whole.find("transformer.h.1.attn.c_attn.weight")));
}

TEST(Parameters, StartWithTheDeviationsOfGpt2) {
  const ModelConfig model{"gpt2", 8, 64, 4, 300, 24, false, 0.0};
  const ParameterStore store(ExecutionSpace(), model, {true, 0, 8, true}, 1);
  const auto deviation = [&](const std::string& name) {
    const auto values = store.parameter(store.find(name));
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return std::sqrt(sum / static_cast<double>(values.size()));
  };
  // The sample deviation of n values scatters by 1/sqrt(2n): below 1.2 % here; 5 % is beyond four sigma.
  EXPECT_NEAR(deviation("transformer.wte.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("transformer.h.2.mlp.c_fc.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("transformer.h.2.mlp.c_proj.weight"), 0.005, 0.00025);
  EXPECT_NEAR(deviation("transformer.h.2.attn.c_proj.weight"), 0.005, 0.00025);
  EXPECT_EQ(deviation("transformer.h.2.ln_2.weight"), 1.0);
  EXPECT_EQ(deviation("transformer.ln_f.bias"), 0.0);
}

TEST(Parameters, TravelThroughTheHost) {
  ParameterStore store(ExecutionSpace(), small, {false, 2, 1, false}, 1);
  EXPECT_EQ(store.entries()[0].name, "transformer.h.2.ln_1.weight");
  const std::size_t entry = store.find("transformer.h.2.attn.c_attn.bias");
  const std::vector<float> before = store.parameter(entry + 1);
  std::vector<float> values(96);
  std::iota(values.begin(), values.end(), 1.0f);
  store.set_parameter(entry, values);
  EXPECT_EQ(store.parameter(entry), values);
  EXPECT_EQ(store.parameter(entry + 1), before);
  store.set_second_moment(entry, values);
  EXPECT_EQ(store.second_moment(entry), values);
  EXPECT_EQ(store.first_moment(entry), std::vector<float>(96, 0.0f));
  EXPECT_THROW(store.set_parameter(entry, {1.0f}), RunError);
  EXPECT_EQ(store.find("lm_head.weight"), -1);
}

TEST(Flops, OfTheStagesAddUpToTheModel) {
  const TrainShape shape{2, 16};
  double sum = 0;
  for (const StageLayers& layers : partition_model(small, 16, 3)) sum += flops_per_microbatch(small, shape, layers);
  EXPECT_DOUBLE_EQ(sum, flops_per_microbatch(small, shape));
}

TEST(Flops, AreThreeTimesThoseOfTheForwardProducts) {
  const double rows = 32, width = 32;
  const double block = 2 * rows * width * (3 * width + width + 4 * width + 4 * width)  // linear layers
                       + 2 * 4 * (2 * 16 * 16 * 8) * 2 / 2;  // batch, heads, one T x T x (C/H) product, two of them, half
  EXPECT_DOUBLE_EQ(flops_per_microbatch(small, {2, 16}, {false, 1, 1, false}), 3 * block);
  EXPECT_DOUBLE_EQ(flops_per_microbatch(small, {2, 16}, {false, 4, 0, true}), 3 * 2 * rows * width * 29);
  const GemmShape gemm = largest_hidden_gemm(small, {2, 16});
  EXPECT_EQ(gemm.m, 32);
  EXPECT_EQ(gemm.n, 128);
  EXPECT_EQ(gemm.k, 32);
}

std::string complaint(const ModelConfig& model, const TrainShape& shape, int stages) {
  try {
    validate(model, shape, stages);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(ModelConfig, SaysWhatIsWrong) {
  const TrainShape shape{2, 16};
  EXPECT_EQ(complaint(small, shape, 4), "");
  ModelConfig model = small;
  model.heads = 5;
  EXPECT_THAT(complaint(model, shape, 1), HasSubstr("model.width = 32: must be a multiple of model.heads = 5"));
  EXPECT_THAT(complaint(small, {2, 25}, 1), HasSubstr("train.sequence = 25: must not be larger than model.context = 24"));
  model = small;
  model.tied = true;
  EXPECT_EQ(complaint(model, shape, 1), "");
  EXPECT_THAT(complaint(model, shape, 2), HasSubstr("model.tied"));
  model = small;
  model.family = "bert";
  EXPECT_THAT(complaint(model, shape, 1), HasSubstr("model.family = \"bert\""));
  model = small;
  model.dropout = 1.0;
  EXPECT_THAT(complaint(model, shape, 1), HasSubstr("model.dropout"));
}

}  // namespace
}  // namespace minipipe::core
