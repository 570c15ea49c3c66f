#include <gtest/gtest.h>

#include <memory>

#include "unit_tests/core/model/outcome.hpp"

namespace minipipe::core::test {
namespace {

constexpr Recompute all_kinds[] = {Recompute::none, Recompute::attention, Recompute::block};

std::vector<KokkosStageOptions> families() { return {small_options(), small_llama()}; }

// Dropout is on in these models: masks are drawn again as they were.
TEST(Recompute, GivesTheSameToTheLastBit) {
  for (KokkosStageOptions options : families()) {
    ASSERT_GT(options.model.dropout, 0.0);
    const Outcome plain = train(options, 1);
    for (const Recompute kind : {Recompute::attention, Recompute::block}) {
      options.recompute = kind;
      for (const bool split : {false, true}) {
        options.split_backward = split;
        expect_same(plain, train(options, 1));
        expect_same(plain, train(options, 3));
        expect_same(plain, train(options, 3, {0, 4, 0}));
      }
    }
  }
}

TEST(Recompute, WeightHalvesMayComeLater) {
  for (KokkosStageOptions options : families()) {
    const Outcome whole = train(options, 1, {}, 1);
    options.split_backward = true;
    for (const Recompute kind : all_kinds) {
      options.recompute = kind;
      Pipeline pipeline(options, 1);
      KokkosStage& stage = *pipeline.stages[0];
      pipeline.forward(0);
      pipeline.forward(1);
      stage.backward_input(0, 0, -1, -1);
      pipeline.forward(2);  // writes scratch memory between the halves of 0
      stage.backward_input(1, 1, -1, -1);
      stage.backward_weight(0, 0);
      stage.backward_input(2, 2, -1, -1);
      stage.backward_weight(1, 1);
      stage.backward_weight(2, 2);
      stage.update(0);
      EXPECT_EQ(whole.parameters, pipeline.read(&ParameterStore::parameter));
    }
  }
}

TEST(Recompute, MemoryIsWhatWasPlannedAndLess) {
  for (KokkosStageOptions options : families()) {
    for (const bool split : {false, true}) {
      options.split_backward = split;
      for (const int stages : {1, 2, 4}) {
        std::vector<std::size_t> most;
        for (const Recompute kind : all_kinds) {
          options.recompute = kind;
          const Pipeline pipeline(options, stages);
          for (const auto& stage : pipeline.stages) EXPECT_EQ(stage->bytes(), planned_memory(stage->options()));
          most.push_back(pipeline.stages[0]->bytes().activations);
        }
        EXPECT_LT(most[1], most[0]);
        // With one block a stage, the shared memory of a split backward is as large as what the slots lose.
        if (stages < 4) {
          EXPECT_LT(most[2], most[1]);
        }
      }
    }
  }
}

// Two blocks, R = 32 rows, C = 32, H = 4.
TEST(Recompute, ASlotKeepsOnlyWhatIsNotComputedAgain) {
  const auto floats_per_row = [](KokkosStageOptions options, Recompute kind) {
    options.layers = {false, 1, 2, false};
    options.recompute = kind;
    options.activation_slots = 3;
    const std::size_t three = planned_memory(options).activations;
    options.activation_slots = 2;
    return (three - planned_memory(options).activations) / sizeof(float) / 32 / 2;
  };
  const std::size_t c = 32, h = 4;
  EXPECT_EQ(floats_per_row(small_options(), Recompute::none), 16 * c + 4 + h);
  EXPECT_EQ(floats_per_row(small_options(), Recompute::attention), 11 * c + 2);  // without norm, qkv, attention, statistics
  EXPECT_EQ(floats_per_row(small_options(), Recompute::block), c);
  const std::size_t kv = 16, f = 40;
  EXPECT_EQ(floats_per_row(small_llama(), Recompute::none), 6 * c + 2 * kv + 3 * f + 2 + h);
  EXPECT_EQ(floats_per_row(small_llama(), Recompute::attention), 3 * c + 3 * f + 1);
  EXPECT_EQ(floats_per_row(small_llama(), Recompute::block), c);
}

// One block and one slot: with a whole backward the gradients of the MLP's maps lie on their activations, two of [R, C] on each
// other, and the attention branch's gradients on what the MLP branch needed.
TEST(Recompute, GradientsOfAWholeBackwardLieOnWhatIsOfNoMoreUse) {
  const auto floats_per_row = [](KokkosStageOptions options, bool split) {
    options.layers = {false, 1, 1, false};
    options.recompute = Recompute::block;
    options.activation_slots = 1;
    options.split_backward = split;
    return planned_memory(options).activations / sizeof(float) / 32;
  };
  const std::size_t c = 32, kv = 16, f = 40;
  EXPECT_EQ(floats_per_row(small_options(), true) - floats_per_row(small_options(), false), (4 * c + c) + 5 * c);
  EXPECT_EQ(floats_per_row(small_llama(), true) - floats_per_row(small_llama(), false), (2 * f + c) + 3 * c + 2 * kv);
}

// A stage in the middle of a pipeline, whose messages are set by hand.
class MiddleStage {
 public:
  explicit MiddleStage(KokkosStageOptions options, int blocks = 2)
      : source_(options.shape, options.model.vocab), messages_("messages", 4 * size(options)) {
    const std::size_t floats = size(options);
    options.layers = {false, 1, blocks, false};
    options.stage = 1;
    options.stages = 3;
    const auto part = [&](int which) { return slice_matrix<float>(messages_, which * floats, 1, floats); };
    options.messages = {part(0), part(1), part(2), part(3)};
    std::vector<float> values(4 * floats);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 2654435761U >> 8) % 1000) / 500 - 1;
    Kokkos::deep_copy(messages_, Kokkos::View<const float*, HostSpace, Unmanaged>(values.data(), values.size()));
    stage = std::make_unique<KokkosStage>(options, source_);
  }

  void forward() { stage->forward(0, 0, 0, 0); }
  std::vector<std::vector<float>> gradients() {
    stage->backward(0, 0, 0, 0);
    stage->complete_output();
    std::vector<std::vector<float>> all;
    for (std::size_t e = 0; e < stage->parameters().entries().size(); ++e) all.push_back(stage->parameters().gradient(e));
    return all;
  }

  std::unique_ptr<KokkosStage> stage;

 private:
  static std::size_t size(const KokkosStageOptions& options) {
    return static_cast<std::size_t>(options.shape.rows()) * options.model.width;
  }
  HashedTokens source_;
  OwnedVector<float> messages_;
};

// The gradients are zero: only weight decay moves the weights.
void let_decay(KokkosStage& stage) { stage.update(0); }

KokkosStageOptions decaying(KokkosStageOptions options) {
  options.adamw.weight_decay = 10;
  options.learning_rate = {1e-2, 1e-2, 1, 10};
  return options;
}

// After an update between forward and backward, everything but the block's input is that of the new weights.
TEST(Recompute, UsesTheWeightsOfTheBackward) {
  for (const KokkosStageOptions& family : families()) {
    KokkosStageOptions options = decaying(family);
    const auto gradients = [&](Recompute kind, bool update_first) {
      options.recompute = kind;
      MiddleStage middle(options, 1);
      if (update_first) let_decay(*middle.stage);
      middle.forward();
      if (!update_first) let_decay(*middle.stage);
      return middle.gradients();
    };
    const auto fresh = gradients(Recompute::none, true);
    EXPECT_EQ(gradients(Recompute::block, true), fresh);
    EXPECT_EQ(gradients(Recompute::block, false), fresh);
    EXPECT_NE(gradients(Recompute::none, false), fresh);
    EXPECT_NE(gradients(Recompute::attention, false), fresh);
    EXPECT_NE(gradients(Recompute::attention, false), gradients(Recompute::none, false));
  }
}

TEST(Recompute, UsesTheStashedVersionOfItsForward) {
  for (const KokkosStageOptions& family : families()) {
    KokkosStageOptions options = decaying(family);
    options.weight_rule = WeightRule::stashed;
    options.weight_copies = 2;
    const auto gradients = [&](Recompute kind, bool update) {
      options.recompute = kind;
      MiddleStage middle(options);
      middle.forward();
      if (update) let_decay(*middle.stage);
      return middle.gradients();
    };
    const auto expected = gradients(Recompute::none, false);
    for (const Recompute kind : all_kinds) EXPECT_EQ(gradients(kind, true), expected);
  }
}

TEST(Recompute, EvaluationIsNotDisturbed) {
  KokkosStageOptions options = small_llama();
  const Outcome one = train(options, 1, {}, 2);
  options.recompute = Recompute::block;
  Pipeline pipeline(options, 1);
  HashedTokens other(options.shape, options.model.vocab, 99);
  pipeline.step(0);
  pipeline.stages[0]->evaluate(0, other, -1, -1);
  pipeline.step(1);
  EXPECT_EQ(one.losses, pipeline.take_losses());
  EXPECT_EQ(one.parameters, pipeline.read(&ParameterStore::parameter));
}

}  // namespace
}  // namespace minipipe::core::test
