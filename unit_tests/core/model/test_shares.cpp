#include <gtest/gtest.h>

#include <cmath>

#include "core/model/flops.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/model/random_model.hpp"
#include "unit_tests/core/model/replicas.hpp"
#include "unit_tests/core/model/uneven_tokens.hpp"

namespace minipipe::core::test {
namespace {

constexpr SdpUnit all_units[] = {SdpUnit::block, SdpUnit::sublayer, SdpUnit::neuron};
constexpr Recompute all_kinds[] = {Recompute::none, Recompute::attention, Recompute::block};

// Replica 1 of three, which works alone; the masks are those of the whole model.
KokkosStageOptions sharing(KokkosStageOptions options, SdpUnit unit, bool backward, double coverage) {
  options.replication = {.mode = ReplicaMode::sdp, .replicas = 3, .replica = 1, .unit = unit, .backward_masking = backward};
  options.replication.neuron_groups = 6;  // does not divide the hidden features
  give_masks(options.replication, {true, 0, options.model.layers, true}, coverage);
  return options;
}

// Of a stage of the model.
void cut_masks(KokkosStageOptions& options) {
  auto& holders = options.replication.masks.holders;
  const int per_block = static_cast<int>(holders.size()) / options.model.layers;
  const auto begin = holders.begin() + options.layers.first_block * per_block;
  holders = std::vector<std::vector<int>>(begin, begin + options.layers.blocks * per_block);
}

Pipeline pipeline_of(const KokkosStageOptions& options, int stages, const std::vector<int>& partition = {}) {
  return Pipeline(options, stages, partition, cut_masks);
}

// By name, of all stages that have them.
using Tensors = std::map<std::string, std::vector<float>>;
Tensors parameters_of(const Pipeline& pipeline) {
  Tensors all;
  for (const auto& stage : pipeline.stages) {
    for (const ParameterEntry& entry : stage->replica_layout().forward) {
      all[entry.name] = read_entry(stage->parameters().parameters(), entry);
    }
  }
  return all;
}
Tensors trained_of(const Pipeline& pipeline, Vector<float> (ParameterStore::*array)() const) {
  Tensors all;
  for (const auto& stage : pipeline.stages) {
    for (const ParameterEntry& entry : stage->replica_layout().trained) {
      all[entry.name] = read_entry((stage->parameters().*array)(), entry);
    }
  }
  return all;
}

struct Result {
  std::vector<double> losses;
  Tensors parameters, first_moments;
};
Result run(const KokkosStageOptions& options, int stages, const std::vector<int>& partition = {}, int updates = 3) {
  Pipeline pipeline = pipeline_of(options, stages, partition);
  for (int u = 0; u < updates; ++u) pipeline.step(u);
  return {pipeline.take_losses(), parameters_of(pipeline), trained_of(pipeline, &ParameterStore::first_moment)};
}
void expect_equal(const Result& one, const Result& other) {
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_TRUE(one.parameters == other.parameters);
  EXPECT_TRUE(one.first_moments == other.first_moments);
}

// Calls visit(place in the tensor, place in the unsplit model's tensor).
template <class Visit>
void for_elements_of(const ParameterEntry& entry, const Visit& visit) {
  const std::int64_t columns = matrix_shape(entry.shape).columns, full_columns = matrix_shape(entry.full_shape).columns;
  for (const Slab& slab : entry.slabs) {
    for (int r = 0; r < slab.rows; ++r) {
      for (int c = 0; c < slab.columns; ++c) {
        visit((slab.row + r) * columns + slab.column + c, (slab.full_row + r) * full_columns + slab.full_column + c);
      }
    }
  }
}

// Onto the residual stream: with zeros there, nothing comes out of a branch or a neuron.
bool output_projection(const std::string& name) {
  return name.find("c_proj") != std::string::npos || name.find("o_proj") != std::string::npos ||
         name.find("down_proj") != std::string::npos;
}

// The unsplit model in double with random weights, the same in the stages; what is not computed there is zero.
void set_same(DoubleModel& model, Pipeline& pipeline) {
  for (const ParameterEntry& full : model.entries) {
    const std::vector<double> random = random_values(full);
    std::vector<double> values(full.size, 0.0);
    if (!output_projection(full.name)) values = random;
    for (const auto& stage : pipeline.stages) {
      for (const ParameterEntry& entry : stage->replica_layout().forward) {
        if (entry.name != full.name) continue;
        std::vector<float> own(entry.size);
        for_elements_of(entry, [&](std::int64_t at, std::int64_t there) {
          own[at] = static_cast<float>(random[there]);
          values[there] = own[at];
        });
        write_entry(stage->parameters().parameters(), entry, own);
      }
    }
    DoubleModel::to_device(slice<double>(model.parameters, full.offset, full.size), values);
  }
}

// Returns how many of the model's elements have been compared.
std::size_t expect_gradients(const DoubleModel& model, const Pipeline& pipeline, double factor) {
  std::size_t compared = 0;
  for (const ParameterEntry& full : model.entries) {
    const auto expected = DoubleModel::to_host(slice<double>(model.gradients, full.offset, full.size));
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(factor * value));
    for (const auto& stage : pipeline.stages) {
      for (const ParameterEntry& entry : stage->replica_layout().trained) {
        if (entry.name != full.name) continue;
        const std::vector<float> own = read_entry(stage->parameters().gradients(), entry);
        for_elements_of(entry, [&](std::int64_t at, std::int64_t there) {
          EXPECT_NEAR(own[at], factor * expected[there], 2e-4 * largest + 1e-9) << full.name << " " << there;
          ++compared;
        });
      }
    }
  }
  return compared;
}

// Forward masking leaves out, backward masking computes everything and trains a part.
TEST(Shares, GradientsAreThoseOfTheModelWithoutTheRest) {
  for (const KokkosStageOptions& family : {small_options(), small_llama()}) {
    for (const SdpUnit unit : all_units) {
      for (const bool backward : {false, true}) {
        SCOPED_TRACE(family.model.family + " unit " + std::to_string(static_cast<int>(unit)) + (backward ? " backward" : ""));
        KokkosStageOptions options = sharing(family, unit, backward, 0.5);
        options.window = 1;
        Pipeline pipeline = pipeline_of(options, 2);
        DoubleModel model(options.model, options.shape, options.seed);
        set_same(model, pipeline);
        set_batch(model, pipeline.source, 2 * 3 + 1);  // its number over all replicas
        const double loss = model.loss();
        model.backward();
        pipeline.forward(2);
        pipeline.backward(2);
        EXPECT_NEAR(pipeline.take_losses().at(0), loss, 1e-5 * loss);
        const std::size_t compared = expect_gradients(model, pipeline, 1.0);
        std::size_t all = 0;
        for (const ParameterEntry& entry : model.entries) all += entry.size;
        EXPECT_LT(compared, all);
        EXPECT_GT(compared, all / 3);
      }
    }
  }
}

TEST(Shares, HoldingEverythingIsTheSameToTheLastBit) {
  for (KokkosStageOptions family : {small_options(), small_llama()}) {
    family.clip = Clip::stage;
    family.clip_norm = 0.1;
    const Result plain = run(family, 2);
    for (const SdpUnit unit : all_units) {
      for (const bool backward : {false, true}) {
        KokkosStageOptions options = sharing(family, unit, backward, 1.0);
        options.replication.replicas = 1;
        options.replication.replica = 0;
        give_masks(options.replication, {true, 0, options.model.layers, true}, 1.0);
        expect_equal(plain, run(options, 2));
      }
    }
  }
}

// Among them stages of which nothing is held.
TEST(Shares, ResultsDoNotDependOnTheNumberOfStages) {
  for (const KokkosStageOptions& family : {small_options(), small_llama()}) {
    for (const SdpUnit unit : all_units) {
      for (const bool backward : {false, true}) {
        KokkosStageOptions options = sharing(family, unit, backward, 0.5);
        const Result one = run(options, 1);
        EXPECT_EQ(one.losses.size(), 9u);
        expect_equal(one, run(options, 2));
        expect_equal(one, run(options, 4));
        expect_equal(one, run(options, 3, {0, 4, 0}));
      }
    }
  }
}

TEST(Shares, MuonStepsWhatIsTrained) {
  for (const bool backward : {false, true}) {
    KokkosStageOptions options = sharing(small_options(), SdpUnit::sublayer, backward, 0.5);
    options.optimizer = OptimizerKind::muon;
    expect_equal(run(options, 1), run(options, 3));
  }
}

TEST(Shares, AnyMaskPassesTheStreamOn) {
  KokkosStageOptions options = sharing(small_options(), SdpUnit::sublayer, false, 0.5);
  for (const int bits : {0, 1, 2, 0x5a, 0xa5, 0x81, 0xc3}) {
    for (int unit = 0; unit < 8; ++unit) {
      options.replication.masks.holders[unit] = (bits >> unit & 1) != 0 ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 2};
    }
    const Result one = run(options, 1, {}, 2);
    expect_equal(one, run(options, 4, {}, 2));
    options.split_backward = true;
    for (const Recompute kind : all_kinds) {
      options.recompute = kind;
      expect_equal(one, run(options, 3, {1, 2, 1}, 2));
    }
    options.split_backward = false;
    options.recompute = Recompute::none;
  }
}

TEST(Shares, RecomputationGivesTheSameToTheLastBit) {
  for (const KokkosStageOptions& family : {small_options(), small_llama()}) {
    ASSERT_GT(family.model.dropout, 0.0);
    for (const SdpUnit unit : all_units) {
      for (const bool backward : {false, true}) {
        KokkosStageOptions options = sharing(family, unit, backward, 0.5);
        const Result plain = run(options, 1, {}, 2);
        for (const Recompute kind : all_kinds) {
          options.recompute = kind;
          for (const bool split : {false, true}) {
            options.split_backward = split;
            expect_equal(plain, run(options, 2, {}, 2));
          }
        }
      }
    }
  }
}

TEST(Shares, MemoryIsWhatWasPlanned) {
  for (const KokkosStageOptions& family : {small_options(), small_llama()}) {
    for (const ReplicaCase& way : all_replica_cases()) {
      for (const int stages : {1, 4}) {
        SCOPED_TRACE(way.name);
        KokkosStageOptions options = family;
        options.replication = way.options;
        options.replication.replica = 2;
        if (way.options.sdp()) give_masks(options.replication, {true, 0, options.model.layers, true}, way.coverage);
        const Pipeline pipeline = way.options.sdp() ? pipeline_of(options, stages) : Pipeline(options, stages);
        for (const auto& stage : pipeline.stages) EXPECT_EQ(stage->bytes(), planned_memory(stage->options()));
      }
    }
  }
}

// Half of four blocks. Forward: half of everything that belongs to them. Backward: half of gradients and moments. Beside the
// weights there is room for those of one full block, for evaluation.
TEST(Shares, WhatIsNotHeldTakesNoMemory) {
  KokkosStageOptions options = small_options();
  options.activation_slots = 8;
  options.layers = {false, 0, 4, false};
  const StageBytes plain = planned_memory(options);
  const std::size_t block = plain.parameters / 4;
  const auto bytes = [&](SdpUnit unit, bool backward) {
    KokkosStageOptions share = sharing(options, unit, backward, 0.5);
    share.replication.neuron_groups = 4;
    give_masks(share.replication, share.layers, 0.5);
    return planned_memory(share);
  };
  const StageBytes forward = bytes(SdpUnit::block, false), backward = bytes(SdpUnit::block, true);
  EXPECT_EQ(forward.parameters, 2 * block + block);
  EXPECT_EQ(forward.gradients, 2 * block);
  EXPECT_EQ(forward.optimizer, 4 * block);
  EXPECT_LT(forward.activations, 0.6 * plain.activations);
  EXPECT_EQ(backward.parameters, 4 * block + block);
  EXPECT_EQ(backward.gradients, 2 * block);
  EXPECT_EQ(backward.optimizer, 4 * block);
  EXPECT_EQ(bytes(SdpUnit::sublayer, false).gradients, 2 * block);  // cyclic: two branches of each kind
  const StageBytes neurons = bytes(SdpUnit::neuron, false);
  EXPECT_LT(neurons.parameters, 0.7 * plain.parameters + block);
  EXPECT_LT(neurons.gradients, 0.7 * plain.gradients);
  EXPECT_LT(neurons.activations, 0.8 * plain.activations);
}

TEST(Shares, ActiveFlopsCountWhatIsComputed) {
  const KokkosStageOptions family = small_llama();
  const StageLayers all{true, 0, 4, true}, half{true, 0, 2, true};
  const auto active = [&](SdpUnit unit, bool backward, double coverage) {
    KokkosStageOptions options = sharing(family, unit, backward, coverage);
    options.replication.neuron_groups = 4;
    give_masks(options.replication, all, coverage);
    return active_flops_per_microbatch(options.model, options.shape, all, options.replication);
  };
  const double full = flops_per_microbatch(family.model, family.shape, all);
  const double of_half = flops_per_microbatch(family.model, family.shape, half);
  for (const SdpUnit unit : all_units) EXPECT_EQ(active(unit, false, 1.0), full);
  EXPECT_DOUBLE_EQ(active(SdpUnit::block, false, 0.5), of_half);
  EXPECT_DOUBLE_EQ(active(SdpUnit::sublayer, false, 0.5), of_half);
  ModelConfig narrow = family.model;
  narrow.hidden = 20;
  EXPECT_DOUBLE_EQ(active(SdpUnit::neuron, false, 0.5), flops_per_microbatch(narrow, family.shape, all));
  // Weight gradients are a third of the products with weights: half of them is a sixth.
  const double rows = family.shape.rows(), width = 32, mlp = 4 * rows * 2 * width * 3 * 40;
  const double scores = 4 * rows * 2 * width * family.shape.sequence;
  const double blocks = full - flops_per_microbatch(family.model, family.shape, {true, 0, 0, true});
  EXPECT_DOUBLE_EQ(active(SdpUnit::block, true, 0.5), full - (blocks - 3 * scores) / 6);
  EXPECT_DOUBLE_EQ(active(SdpUnit::neuron, true, 0.5), full - mlp / 2);
}

KokkosStageOptions one_stage(KokkosStageOptions options) {
  options.layers = {true, 0, options.model.layers, true};
  return options;
}

TEST(Tokens, OnlyCountedOnesAreInLossAndGradient) {
  const KokkosStageOptions options = one_stage(small_options());
  UnevenTokens source(options.shape, options.model.vocab);
  KokkosStage stage(options, source);
  DoubleModel model(options.model, options.shape, options.seed);
  for (const ParameterEntry& entry : model.entries) {
    const auto values = read_entry(stage.parameters().parameters(), entry);
    DoubleModel::to_device(slice<double>(model.parameters, entry.offset, entry.size), {values.begin(), values.end()});
  }
  const double rows = options.shape.rows();
  double tokens = 0;
  for (int m = 0; m < 3; ++m) {
    const auto counted = static_cast<double>(source.counted_tokens(m));
    tokens += counted;
    set_batch(model, source, m);
    const double loss = model.loss() * rows / counted;
    model.backward();
    stage.forward(m, 0, -1, -1);
    stage.backward(m, 0, -1, -1);
    const auto losses = stage.take_losses();
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_NEAR(losses[0].loss, loss, 1e-5);
    EXPECT_EQ(losses[0].tokens, counted);
  }
  EXPECT_LT(tokens, 3 * rows - 30);
  EXPECT_DOUBLE_EQ(stage.gradient_scale({0}, 0), 3 * rows / tokens);
  stage.update(0);
  const auto squares = stage.take_gradient_squares().at(0).squares;
  for (const ParameterEntry& entry : model.entries) {
    const auto sum = DoubleModel::to_host(slice<double>(model.gradients, entry.offset, entry.size));
    const auto moment = read_entry(stage.parameters().first_moment(), entry);
    double largest = 0, square = 0;
    for (const double value : sum) {
      largest = std::max(largest, std::abs(value * rows / tokens));
      square += value * rows / tokens * value * rows / tokens;
    }
    for (std::size_t i = 0; i < sum.size(); ++i) {
      ASSERT_NEAR(moment[i] / 0.1, sum[i] * rows / tokens, 1e-4 * largest + 1e-9) << entry.name << " " << i;
    }
    EXPECT_NEAR(squares.at(entry.global_index).sum, square, 1e-3 * square + 1e-18) << entry.name;
  }
}

TEST(Tokens, ScaleCoversTheMicrobatchesOfAllHolders) {
  KokkosStageOptions options = one_stage(small_options());
  options.replication.replicas = 3;
  options.window = 2;
  UnevenTokens source(options.shape, options.model.vocab);
  const KokkosStage stage(options, source);
  // Update 1 of replicas 0 and 2: microbatches 2 and 3, which are 6, 8, 9 and 11 over all: 32 - 3 m are counted.
  EXPECT_DOUBLE_EQ(stage.gradient_scale({0, 2}, 1), 64.0 / (14 + 8 + 5 + 0));
  EXPECT_EQ(stage.gradient_scale({0}, 100), 0.0);
  HashedTokens even(options.shape, options.model.vocab);
  EXPECT_EQ(KokkosStage(options, even).gradient_scale({0, 1, 2}, 7), 1.0 / 3);
}

TEST(Tokens, ASourceMustKnowItsCount) {
  const KokkosStageOptions options = one_stage(small_options());
  class Silent : public UnevenTokens {
   public:
    using UnevenTokens::UnevenTokens;
    void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override {
      HashedTokens::batch(microbatch, tokens, targets);
    }
  } source(options.shape, options.model.vocab);
  KokkosStage stage(options, source);
  EXPECT_NO_THROW(stage.forward(0, 0, -1, -1));
  EXPECT_THROW(stage.forward(1, 0, -1, -1), RunError);
}

TEST(Shares, AShardedStageNeedsAnExchange) {
  KokkosStageOptions options = one_stage(small_options());
  options.replication = {.mode = ReplicaMode::fsdp, .replicas = 2};
  HashedTokens source(options.shape, options.model.vocab);
  KokkosStage stage(options, source);
  EXPECT_THROW(stage.forward(0, 0, -1, -1), RunError);
}

TEST(Shares, AShareAloneCannotEvaluate) {
  const KokkosStageOptions options = one_stage(sharing(small_options(), SdpUnit::block, false, 0.5));
  HashedTokens source(options.shape, options.model.vocab);
  KokkosStage stage(options, source);
  EXPECT_THROW(stage.evaluate(0, source, -1, -1), RunError);
}

// Has the full model's layers.
class FullModel : public LayerExchange {
 public:
  FullModel(const KokkosStage& stage, const ParameterStore& full) : layout_(stage.replica_layout()), full_(full) {}
  void fetch(int, int) override {}
  void assemble(int layer, const Vector<float>& target) override {
    for (const ParameterEntry& entry : layout_.full) {
      if (entry.layer == layer) write_entry(target, entry, full_.parameter(full_.find(entry.name)));
    }
  }
  void gradient_begins(int) override {}
  void gradient_done(int, bool) override {}
  bool gradients_ready(std::int64_t) override { return true; }
  void weights_changed(std::int64_t) override {}
  bool weights_ready() override { return true; }
  std::vector<double> sum_over_replicas(const std::vector<double>& mine) override { return mine; }
  void progress() override {}
  std::size_t bytes() const override { return 0; }

 private:
  const ReplicaLayout& layout_;
  const ParameterStore& full_;
};

TEST(Shares, EvaluationOfTheFullModelPassesThroughTheStages) {
  for (const KokkosStageOptions& family : {small_options(), small_llama()}) {
    Pipeline plain(family, 1);
    plain.stages[0]->evaluate(2 * 3 + 1, plain.source, -1, -1);
    const double expected = plain.stages[0]->take_evaluation_losses().at(0).loss;
    for (const SdpUnit unit : all_units) {
      for (const std::vector<int>& partition : {std::vector<int>{1, 2, 1}, {0, 4, 0}, {4}}) {
        const int count = static_cast<int>(partition.size());
        Pipeline pipeline = pipeline_of(sharing(family, unit, false, 0.5), count, partition);
        std::vector<std::unique_ptr<FullModel>> exchanges;
        for (int s = 0; s < count; ++s) {
          exchanges.push_back(std::make_unique<FullModel>(*pipeline.stages[s], plain.stages[0]->parameters()));
          pipeline.stages[s]->attach(*exchanges.back());
          pipeline.stages[s]->evaluate(2, pipeline.source, s > 0 ? 1 : -1, s + 1 < count ? 1 : -1);
          pipeline.stages[s]->complete_output();
        }
        const auto losses = pipeline.stages.back()->take_evaluation_losses();
        EXPECT_EQ(losses.at(0).loss, expected);
        EXPECT_EQ(losses.at(0).microbatch, 7);
      }
    }
  }
}

}  // namespace
}  // namespace minipipe::core::test
