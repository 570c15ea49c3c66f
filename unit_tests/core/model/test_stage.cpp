#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "schedules/error.hpp"
#include "unit_tests/core/model/outcome.hpp"

namespace minipipe::core::test {
namespace {

TEST(Stage, ResultsDoNotDependOnTheNumberOfStages) {
  const Outcome one = train(small_options(), 1);
  ASSERT_EQ(one.losses.size(), 12u);
  for (const int stages : {2, 3, 4}) {
    SCOPED_TRACE(stages);
    expect_same(one, train(small_options(), stages));
  }
}

TEST(Stage, ResultsDoNotDependOnThePartition) {
  const Outcome one = train(small_options(), 1);
  expect_same(one, train(small_options(), 3, {0, 4, 0}));
  expect_same(one, train(small_options(), 2, {3, 1}));
}

// Wide enough for the blocked paths of the matrix products and for several attention tiles.
TEST(Stage, ResultsOfAWiderModelDoNotDependOnTheNumberOfStages) {
  KokkosStageOptions options = small_options();
  options.model = {"gpt2", 2, 96, 3, 257, 96, false, 0.1};
  options.shape = {2, 80};
  const Outcome one = train(options, 1, {}, 2);
  expect_same(one, train(options, 2, {}, 2));
  expect_same(one, train(options, 4, {0, 1, 1, 0}, 2));
}

TEST(Stage, LearnsARepeatedMicrobatch) {
  KokkosStageOptions options = small_options();
  options.model.dropout = 0;
  options.window = 1;
  options.learning_rate = {1e-2, 1e-2, 2, 60};
  Pipeline pipeline(options, 2);
  for (int u = 0; u < 60; ++u) {
    pipeline.forward(0);
    pipeline.backward(0);
    for (const auto& stage : pipeline.stages) stage->update(u);
  }
  const auto losses = pipeline.take_losses();
  EXPECT_NEAR(losses.front(), std::log(29.0), 0.1);  // nearly uniform at the start
  EXPECT_LT(losses.back(), 0.5);
}

// An update between forward and backward: activations stay those of the forward, weights are the new ones.
TEST(Stage, BackwardUsesCurrentWeightsAndOldActivations) {
  KokkosStageOptions options = small_options();
  Pipeline before(options, 1);
  Pipeline after(options, 1);
  for (Pipeline* pipeline : {&before, &after}) pipeline->forward(0);
  ParameterStore& store = after.stages[0]->parameters();
  const std::size_t head = store.find("lm_head.weight");
  std::vector<float> doubled = store.parameter(head);
  for (float& value : doubled) value *= 2;
  store.set_parameter(head, doubled);
  for (Pipeline* pipeline : {&before, &after}) pipeline->backward(0);
  const auto old_gradients = before.read(&ParameterStore::gradient);
  const auto new_gradients = after.read(&ParameterStore::gradient);
  EXPECT_EQ(old_gradients.at("lm_head.weight"), new_gradients.at("lm_head.weight"));
  for (const char* name : {"transformer.ln_f.weight", "transformer.h.1.mlp.c_fc.weight", "transformer.wte.weight"}) {
    std::vector<float> expected = old_gradients.at(name);
    for (float& value : expected) value *= 2;  // exact: a power of two
    EXPECT_EQ(new_gradients.at(name), expected) << name;
  }
}

TEST(Stage, SplitBackwardGivesTheSameAsWhole) {
  KokkosStageOptions options = small_options();
  const Outcome whole = train(options, 1);
  options.split_backward = true;
  expect_same(whole, train(options, 1));
  expect_same(whole, train(options, 3));
}

TEST(Stage, WeightHalvesMayComeLater) {
  KokkosStageOptions options = small_options();
  const Outcome whole = train(options, 1, {}, 1);
  options.split_backward = true;
  Pipeline pipeline(options, 1);
  KokkosStage& stage = *pipeline.stages[0];
  for (int k = 0; k < 3; ++k) pipeline.forward(k);
  for (int k = 0; k < 3; ++k) stage.backward_input(k, k, -1, -1);
  for (int k = 0; k < 3; ++k) stage.backward_weight(k, k);
  stage.update(0);
  EXPECT_EQ(whole.parameters, pipeline.read(&ParameterStore::parameter));
}

TEST(Stage, HalvesNeedASplitBackward) {
  Pipeline pipeline(small_options(), 1);
  pipeline.forward(0);
  EXPECT_THROW(pipeline.stages[0]->backward_input(0, 0, -1, -1), RunError);
  EXPECT_THROW(pipeline.stages[0]->backward_weight(0, 0), RunError);
}

TEST(Stage, InterleavedForwardsAndBackwardsGiveTheSame) {
  const Outcome one = train(small_options(), 1, {}, 1);
  Pipeline pipeline(small_options(), 2);
  pipeline.forward(0);
  pipeline.backward(0);
  pipeline.forward(1);
  pipeline.forward(2);
  pipeline.backward(1);
  pipeline.backward(2);
  for (const auto& stage : pipeline.stages) stage->update(0);
  EXPECT_EQ(one.losses, pipeline.take_losses());
  EXPECT_EQ(one.parameters, pipeline.read(&ParameterStore::parameter));
}

TEST(Stage, SeedAndDropoutMatter) {
  const Outcome one = train(small_options(), 1, {}, 1);
  KokkosStageOptions other_seed = small_options();
  other_seed.seed = 6;
  EXPECT_NE(one.losses, train(other_seed, 1, {}, 1).losses);
  KokkosStageOptions no_dropout = small_options();
  no_dropout.model.dropout = 0;
  EXPECT_NE(one.losses, train(no_dropout, 1, {}, 1).losses);
}

// What an update leaves in the gradients is zero, or of no use: not a number would spread.
TEST(Stage, OldGradientsAreForgottenAfterAnUpdate) {
  KokkosStageOptions tied = small_options(), again = small_options(), in_bf16 = small_options();
  tied.model.tied = true;
  again.recompute = Recompute::block;
  in_bf16.precision = Precision::bf16;
  for (const KokkosStageOptions& options : {small_options(), tied, again, in_bf16, small_llama(), small_hybrid()}) {
    for (const int stages : {1, 2}) {
      if (options.model.tied && stages > 1) continue;
      SCOPED_TRACE(::testing::Message() << options.model.family << " on " << stages << " stages");
      Pipeline plain(options, stages), spoilt(options, stages);
      for (Pipeline* pipeline : {&plain, &spoilt}) pipeline->step(0);
      int left = 0;
      for (const auto& stage : spoilt.stages) {
        const ParameterStore& store = stage->parameters();
        for (std::size_t e = 0; e < store.trained().size(); ++e) {
          std::vector<float> values = store.gradient(e);
          for (float& value : values) value = value == 0 ? 0 : std::numeric_limits<float>::quiet_NaN();
          left += std::count_if(values.begin(), values.end(), [](float value) { return value != 0; }) > 0;
          write_entry(store.gradients(), store.trained()[e], values);
        }
      }
      EXPECT_GT(left, 0) << "nothing was left to forget";
      for (Pipeline* pipeline : {&plain, &spoilt}) pipeline->step(1);
      EXPECT_EQ(plain.read(&ParameterStore::parameter), spoilt.read(&ParameterStore::parameter));
      EXPECT_EQ(plain.take_losses(), spoilt.take_losses());
    }
  }
}

TEST(Stage, GradientsAreThoseOfTheWindowsMean) {
  KokkosStageOptions options = small_options();
  options.model.dropout = 0;
  Pipeline three(options, 1);
  options.window = 1;
  Pipeline single(options, 1);
  for (Pipeline* pipeline : {&three, &single}) {
    pipeline->forward(0);
    pipeline->backward(0);
  }
  const auto third = three.read(&ParameterStore::gradient).at("transformer.ln_f.weight");
  const auto full = single.read(&ParameterStore::gradient).at("transformer.ln_f.weight");
  for (std::size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(3 * third[i], full[i], 1e-5 * std::abs(full[i]) + 1e-8);
}

TEST(Stage, GradientSquaresAreReportedByTensor) {
  Pipeline pipeline(small_options(), 2);
  KokkosStage& stage = *pipeline.stages[1];
  for (int k = 0; k < 3; ++k) {
    pipeline.forward(k);
    pipeline.backward(k);
  }
  std::vector<double> expected;
  for (std::size_t e = 0; e < stage.parameters().entries().size(); ++e) {
    double sum = 0;
    for (const float g : stage.parameters().gradient(e)) sum += static_cast<double>(g) * g;
    expected.push_back(sum);
  }
  stage.update(0);
  const auto squares = stage.take_gradient_squares();
  ASSERT_EQ(squares.size(), 1u);
  EXPECT_EQ(squares[0].update, 0);
  ASSERT_EQ(squares[0].squares.size(), expected.size());
  for (std::size_t e = 0; e < expected.size(); ++e) EXPECT_NEAR(squares[0].squares[e].sum, expected[e], 1e-12 * expected[e]);
  EXPECT_TRUE(stage.take_gradient_squares().empty());
}

// Adds the squares of all tensors of all stages in the order of global indices.
TEST(Stage, GlobalClippingDoesNotDependOnTheNumberOfStages) {
  KokkosStageOptions options = small_options();
  options.clip = Clip::global;
  options.clip_norm = 0.05;
  const auto run = [&](int stages) {
    Pipeline pipeline(options, stages);
    std::vector<double> all;
    std::size_t asked = 0;
    for (int k = 0; k < 3; ++k) {
      pipeline.forward(k);
      pipeline.backward(k);
    }
    for (const auto& stage : pipeline.stages) {  // what the other stages would send
      const auto& store = stage->parameters();
      for (std::size_t e = 0; e < store.entries().size(); ++e) {
        double sum = 0;
        for (const float g : store.gradient(e)) sum += static_cast<double>(g) * g;
        all.push_back(sum);
      }
    }
    for (const auto& stage : pipeline.stages) {
      stage->set_global_squares([&](const std::vector<TensorSquares>& mine) {
        asked += mine.size();
        double total = 0;
        for (const double square : all) total += square;
        return total;
      });
      stage->update(0);
    }
    EXPECT_EQ(asked, all.size());
    return pipeline.read(&ParameterStore::first_moment);
  };
  const auto one = run(1);
  EXPECT_EQ(one, run(3));
  // After one update m = (1 - beta1) times the clipped gradient, whose norm is clip_norm.
  double norm = 0;
  for (const auto& [name, values] : one) {
    for (const float value : values) norm += static_cast<double>(value) * value;
  }
  EXPECT_NEAR(std::sqrt(norm) / 0.1, 0.05, 1e-5);
}

TEST(Stage, GlobalClippingNeedsSomebodyToAdd) {
  KokkosStageOptions options = small_options();
  options.clip = Clip::global;
  Pipeline pipeline(options, 1);
  EXPECT_THROW(pipeline.step(0), RunError);
}

TEST(Stage, StageClippingUsesItsOwnNorm) {
  KokkosStageOptions options = small_options();
  options.clip = Clip::stage;
  options.clip_norm = 0.02;
  Pipeline pipeline(options, 2);
  pipeline.step(0);
  for (const auto& stage : pipeline.stages) {
    double norm = 0;
    for (std::size_t e = 0; e < stage->parameters().entries().size(); ++e) {
      for (const float value : stage->parameters().first_moment(e)) norm += static_cast<double>(value) * value;
    }
    EXPECT_NEAR(std::sqrt(norm) / 0.1, 0.02, 1e-5);
  }
}

TEST(Stage, EvaluationGivesTheForwardLossWithoutDropout) {
  KokkosStageOptions options = small_options();
  options.model.dropout = 0;
  Pipeline plain(options, 1);
  plain.forward(5);
  const std::vector<double> expected = plain.take_losses();
  options.model.dropout = 0.3;
  for (const int stages : {1, 3}) {
    Pipeline pipeline(options, stages);
    std::vector<float> tokens;
    for (int s = 0; s < stages; ++s) {
      pipeline.stages[s]->evaluate(5, pipeline.source, s > 0 ? 1 : -1, s + 1 < stages ? 1 : -1, &tokens);
      pipeline.stages[s]->complete_output();
    }
    const auto losses = pipeline.stages.back()->take_evaluation_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_EQ(losses[0].microbatch, 5);
    EXPECT_EQ(expected, std::vector<double>{losses[0].loss});
    ASSERT_EQ(tokens.size(), static_cast<std::size_t>(options.shape.rows()));
    double sum = 0;
    for (const float loss : tokens) sum += loss;
    EXPECT_NEAR(sum / static_cast<double>(tokens.size()), losses[0].loss, 1e-6);
    EXPECT_TRUE(pipeline.take_losses().empty());
  }
}

TEST(Stage, EvaluationDoesNotDisturbTraining) {
  const Outcome one = train(small_options(), 1, {}, 2);
  Pipeline pipeline(small_options(), 1);
  HashedTokens other(small_options().shape, small_options().model.vocab, 99);
  pipeline.step(0);
  pipeline.stages[0]->evaluate(0, other, -1, -1);
  pipeline.step(1);
  EXPECT_EQ(one.losses, pipeline.take_losses());
  EXPECT_EQ(one.parameters, pipeline.read(&ParameterStore::parameter));
}

TEST(Stage, KeepsMoreLossesThanFitOnTheDevice) {
  KokkosStageOptions options = small_options();
  options.model.layers = 1;
  Pipeline pipeline(options, 1);
  for (int k = 0; k < 150; ++k) pipeline.forward(k);
  const auto losses = pipeline.stages[0]->take_losses();
  ASSERT_EQ(losses.size(), 150u);
  for (int k = 0; k < 150; ++k) EXPECT_EQ(losses[k].microbatch, k);
  pipeline.forward(70);
  EXPECT_EQ(pipeline.take_losses(), std::vector<double>{losses[70].loss});
}

TEST(Stage, MemoryIsWhatWasPlanned) {
  for (const bool split : {false, true}) {
    for (const int stages : {1, 2, 4}) {
      KokkosStageOptions options = small_options();
      options.split_backward = split;
      const Pipeline pipeline(options, stages);
      for (const auto& stage : pipeline.stages) {
        const StageBytes bytes = stage->bytes();
        EXPECT_EQ(bytes, planned_memory(stage->options()));
        EXPECT_EQ(bytes.gradients, bytes.parameters);
        EXPECT_EQ(bytes.optimizer, 2 * bytes.parameters);
      }
    }
  }
}

TEST(Stage, MemoryGrowsByOneSlotPerMicrobatch) {
  KokkosStageOptions options = small_options();
  options.layers = {false, 1, 2, false};
  const auto bytes = [&](int slots) {
    options.activation_slots = slots;
    return planned_memory(options).activations;
  };
  EXPECT_EQ(bytes(3) - bytes(2), bytes(2) - bytes(1));
  const std::size_t floats_per_row = 2 * (16 * 32 + 4 + 4);  // two blocks: 16 widths, LayerNorm statistics, heads
  EXPECT_EQ(bytes(2) - bytes(1), 32 * floats_per_row * sizeof(float));
}

TEST(Stage, ResultsOfALlamaDependNeitherOnStagesNorOnSplitting) {
  const Outcome one = train(small_llama(), 1);
  ASSERT_EQ(one.losses.size(), 12u);
  expect_same(one, train(small_llama(), 2));
  expect_same(one, train(small_llama(), 3, {0, 4, 0}));
  KokkosStageOptions options = small_llama();
  options.split_backward = true;
  expect_same(one, train(options, 1));
  expect_same(one, train(options, 4));
}

// Odd sizes: no array's length is a multiple of the padding.
TEST(Stage, ResultsOfAnUnevenLlamaDoNotDependOnTheNumberOfStages) {
  KokkosStageOptions options = small_llama();
  options.model = {"llama", 3, 42, 3, 61, 90, false, 0.1, 1, 37};
  options.shape = {1, 83};
  const Outcome one = train(options, 1, {}, 2);
  expect_same(one, train(options, 3, {}, 2));
}

TEST(Stage, RefusesMessageMemoryThatDoesNotFit) {
  KokkosStageOptions options = small_options();
  HashedTokens source(options.shape, options.model.vocab);
  options.stages = 2;
  options.layers = {true, 0, 2, false};
  EXPECT_THROW(KokkosStage(options, source), RunError);
}

}  // namespace
}  // namespace minipipe::core::test
