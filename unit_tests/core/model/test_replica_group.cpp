#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/model/stage_layout.hpp"
#include "unit_tests/core/model/outcome.hpp"
#include "unit_tests/core/model/replica_group.hpp"
#include "unit_tests/core/model/uneven_tokens.hpp"

namespace minipipe::core::test {
namespace {

constexpr SdpUnit all_units[] = {SdpUnit::block, SdpUnit::sublayer, SdpUnit::neuron};

ReplicaGroup group_of(const KokkosStageOptions& options, ReplicaOptions replication, int replicas, double coverage,
                      BatchSource& source) {
  replication.replicas = replicas;
  return ReplicaGroup(options, replicas_of({"", replication, coverage}, {true, 0, options.model.layers, true}), source);
}

// The unsplit model's tensors as the holders have them, by name.
std::map<std::string, std::vector<float>> full_model(const ReplicaGroup& group) {
  std::map<std::string, std::vector<float>> all;
  const ReplicaLayout& layout = group.layout(0);
  for (std::size_t layer = 0; layer < layout.full_layer_floats.size(); ++layer) {
    const OwnedVector<float> buffer("buffer", layout.full_layer_floats[layer]);
    group.assemble(static_cast<int>(layer), buffer);
    for (const ParameterEntry& entry : layout.full) {
      if (entry.layer == static_cast<int>(layer)) all[entry.name] = read_entry(buffer, entry);
    }
  }
  return all;
}

void expect_near(const std::map<std::string, std::vector<float>>& one, const std::map<std::string, std::vector<float>>& other,
                 double tolerance) {
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, values] : one) {
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], other.at(name)[i], tolerance) << name << " " << i;
  }
}

struct GroupResult {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> parameters;
};
GroupResult run(const KokkosStageOptions& options, const ReplicaOptions& replication, int replicas, double coverage,
                int updates = 3) {
  HashedTokens source(options.shape, options.model.vocab);
  ReplicaGroup group = group_of(options, replication, replicas, coverage, source);
  for (int u = 0; u < updates; ++u) group.step(u);
  return {group.take_losses(), full_model(group)};
}

// One replica with three times the microbatches: the same data and dropout, sums in another order. AdamW's steps divide by the
// gradients' size, so that rounding errors of tiny gradients are not tiny in the weights: epsilon is large here.
TEST(ReplicaGroup, TrainsAsOneReplicaWithAllMicrobatches) {
  for (KokkosStageOptions options : {small_options(), small_llama()}) {
    options.adamw.epsilon = 1e-3;
    KokkosStageOptions alone = options;
    alone.window = 9;
    alone.activation_slots = 9;
    const Outcome reference = train(alone, 1, {}, 3);
    for (const ReplicaMode mode : {ReplicaMode::ddp, ReplicaMode::zero1, ReplicaMode::fsdp}) {
      SCOPED_TRACE(static_cast<int>(mode));
      const GroupResult result = run(options, {.mode = mode}, 3, 1);
      ASSERT_EQ(result.losses.size(), reference.losses.size());
      for (std::size_t i = 0; i < result.losses.size(); ++i) EXPECT_NEAR(result.losses[i], reference.losses[i], 1e-5);
      expect_near(result.parameters, reference.parameters, 1e-5);
    }
  }
}

// Everything is held by all: plain data parallelism, to the last bit; with shards their sums have another order.
TEST(ReplicaGroup, FullCoverageIsDataParallelism) {
  for (const KokkosStageOptions& options : {small_options(), small_llama()}) {
    const GroupResult plain = run(options, {.mode = ReplicaMode::ddp}, 2, 1);
    for (const SdpUnit unit : all_units) {
      for (const bool backward : {false, true}) {
        const ReplicaOptions replication{.mode = ReplicaMode::sdp, .unit = unit, .backward_masking = backward};
        const GroupResult result = run(options, replication, 2, 1);
        EXPECT_EQ(result.losses, plain.losses);
        EXPECT_TRUE(result.parameters == plain.parameters);
      }
    }
  }
}

TEST(ReplicaGroup, ZeroOneIsDataParallelism) {
  const GroupResult plain = run(small_options(), {.mode = ReplicaMode::ddp}, 3, 1);
  const GroupResult result = run(small_options(), {.mode = ReplicaMode::zero1}, 3, 1);
  EXPECT_EQ(result.losses, plain.losses);
  EXPECT_TRUE(result.parameters == plain.parameters);
}

// With one microbatch per window gradients are not added up across microbatches, and so in the same order.
TEST(ReplicaGroup, OneShardedReplicaIsAnUnshardedOneToTheLastBit) {
  for (KokkosStageOptions options : {small_options(), small_llama()}) {
    options.window = 1;
    for (const bool split : {false, true}) {
      for (const Recompute recompute : {Recompute::none, Recompute::block}) {
        options.split_backward = split;
        options.recompute = recompute;
        const GroupResult plain = run(options, {.mode = ReplicaMode::ddp}, 1, 1);
        const GroupResult result = run(options, {.mode = ReplicaMode::fsdp}, 1, 1);
        EXPECT_EQ(result.losses, plain.losses);
        EXPECT_TRUE(result.parameters == plain.parameters);
      }
    }
  }
}

// The head's part of the gradient and the embedding's are added up in another order. With an odd number of blocks embedding and
// head have the same buffers.
TEST(ReplicaGroup, ATiedHeadMayBeSharded) {
  for (KokkosStageOptions options : {small_options(), small_llama()}) {
    options.model.tied = true;
    options.adamw.epsilon = 1e-3;
    for (const int blocks : {3, 4}) {
      for (const bool split : {false, true}) {
        options.model.layers = blocks;
        options.split_backward = split;
        const GroupResult plain = run(options, {.mode = ReplicaMode::ddp}, 2, 1);
        const GroupResult result = run(options, {.mode = ReplicaMode::fsdp}, 2, 1);
        ASSERT_EQ(result.losses.size(), plain.losses.size());
        for (std::size_t i = 0; i < result.losses.size(); ++i) EXPECT_NEAR(result.losses[i], plain.losses[i], 1e-5);
        expect_near(result.parameters, plain.parameters, 1e-5);
      }
    }
  }
}

// Weighted by tokens, as one replica with all microbatches weighs them.
TEST(ReplicaGroup, UnevenTokensCountAlike) {
  KokkosStageOptions options = small_options();
  options.adamw.epsilon = 1e-3;
  options.window = 2;
  const auto train_on_uneven = [&](ReplicaMode mode, int replicas, std::int64_t window) {
    KokkosStageOptions own = options;
    own.window = own.activation_slots = window;
    UnevenTokens source(options.shape, options.model.vocab);
    ReplicaGroup group = group_of(own, {.mode = mode}, replicas, 1, source);
    for (int u = 0; u < 2; ++u) group.step(u);
    return full_model(group);
  };
  const auto reference = train_on_uneven(ReplicaMode::ddp, 1, 4);
  expect_near(train_on_uneven(ReplicaMode::ddp, 2, 2), reference, 1e-5);
  expect_near(train_on_uneven(ReplicaMode::zero1, 2, 2), reference, 1e-5);
  expect_near(train_on_uneven(ReplicaMode::fsdp, 2, 2), reference, 1e-5);
}

// The norm is that of all replicas, each parameter counted once; the clipped first moment tells.
TEST(ReplicaGroup, ClippingUsesTheNormOfAllReplicas) {
  for (const SdpUnit unit : all_units) {
    for (const bool backward : {false, true}) {
      KokkosStageOptions options = small_options();
      options.clip = Clip::stage;
      options.clip_norm = 0.02;
      const ReplicaOptions replication{
          .mode = ReplicaMode::sdp, .unit = unit, .neuron_groups = 6, .backward_masking = backward};
      HashedTokens source(options.shape, options.model.vocab);
      ReplicaGroup group = group_of(options, replication, 3, 0.67, source);
      group.step(0);
      double norm = 0;
      std::vector<double> told(group.all_squares.size(), 0.0);
      for (const auto& stage : group.stages) {
        for (const SquarePart& part : stage->parameters().owned_squares()) {  // moments lie as gradients do
          for (const float m : read_pieces(stage->parameters().first_moment(), {part.piece}))
            norm += static_cast<double>(m) * m;
        }
        const auto taken = stage->take_gradient_squares();
        for (const TensorSquares& tensor : taken.at(0).squares) told.at(tensor.global_index) += tensor.sum;
      }
      EXPECT_NEAR(std::sqrt(norm) / 0.1, 0.02, 1e-5);
      for (std::size_t t = 0; t < told.size(); ++t) EXPECT_NEAR(told[t], group.all_squares[t], 1e-9 * told[t]) << t;
    }
  }
}

TEST(ReplicaGroup, HoldersStayEqualAndTheFullModelLearns) {
  KokkosStageOptions tied = small_options();
  tied.model.tied = true;
  tied.model.layers = 3;
  tied.activation_slots = 1;
  tied.recompute = Recompute::block;
  KokkosStageOptions partly = tied;
  partly.model.layers = 2;
  partly.recompute = Recompute::attention;  // a slot with one block is too small for the activations of an evaluated one
  std::set<bool> own_memory;
  KokkosStageOptions rounded = small_llama();
  rounded.precision = Precision::bf16;
  for (const KokkosStageOptions& family : {small_options(), small_llama(), tied, partly, rounded}) {
    for (const SdpUnit unit : all_units) {
      for (const bool backward : {false, true}) {
        for (const bool sharded : {false, true}) {
          SCOPED_TRACE(family.model.family + " unit " + std::to_string(static_cast<int>(unit)) + (backward ? " backward" : "") +
                       (sharded ? " sharded" : ""));
          KokkosStageOptions options = family;
          options.model.dropout = 0;
          options.window = 1;
          options.clip = Clip::stage;
          options.clip_norm = 0.1;
          const ReplicaOptions replication{.mode = ReplicaMode::sdp,
                                           .unit = unit,
                                           .neuron_groups = 6,
                                           .backward_masking = backward,
                                           .sharded_units = sharded};
          HashedTokens source(options.shape, options.model.vocab);
          ReplicaGroup group = group_of(options, replication, 3, 0.67, source);
          own_memory.insert(StageLayout(group.stages[0]->options()).evaluation_memory > 0);
          const auto evaluate = [&] {
            std::vector<double> losses;
            for (const auto& stage : group.stages) {
              stage->evaluate(0, source, -1, -1);
              losses.push_back(stage->take_evaluation_losses().at(0).loss);
            }
            return losses;
          };
          // Of the unsplit model with the holders' weights, on the microbatch that each replica sees.
          const auto expect_full_model = [&](const std::vector<double>& losses) {
            Pipeline plain(options, 1);
            ParameterStore& store = plain.stages[0]->parameters();
            for (const auto& [name, values] : full_model(group)) store.set_parameter(store.find(name), values);
            for (int r = 0; r < 3; ++r) {
              plain.stages[0]->evaluate(r, source, -1, -1);
              EXPECT_EQ(plain.stages[0]->take_evaluation_losses().at(0).loss, losses[r]) << r;
            }
          };
          const std::vector<double> before = evaluate();
          expect_full_model(before);
          for (int u = 0; u < 4; ++u) group.step(u);
          const std::vector<double> after = evaluate();
          expect_full_model(after);
          EXPECT_NE(after[0], before[0]);
          if (sharded) continue;
          for (std::size_t b = 0; b < group.layout(0).buckets.size(); ++b) {
            const std::vector<int>& holders = group.layout(0).buckets[b].holders;
            const auto values = [&](int r) {
              return read_pieces(group.stages[r]->parameters().parameters(), group.layout(r).buckets[b].parameters);
            };
            for (const int holder : holders) EXPECT_EQ(values(holder), values(holders[0]));
          }
        }
      }
    }
  }
  EXPECT_EQ(own_memory.size(), 2u);
}

// Shards hold what their unsharded holders hold.
TEST(ReplicaGroup, ShardedUnitsTrainAsUnshardedOnes) {
  for (KokkosStageOptions options : {small_options(), small_llama()}) {
    options.adamw.epsilon = 1e-3;
    for (const SdpUnit unit : all_units) {
      ReplicaOptions replication{.mode = ReplicaMode::sdp, .unit = unit, .neuron_groups = 6};
      const GroupResult plain = run(options, replication, 3, 0.67);
      replication.sharded_units = true;
      const GroupResult result = run(options, replication, 3, 0.67);
      for (std::size_t i = 0; i < result.losses.size(); ++i) EXPECT_NEAR(result.losses[i], plain.losses[i], 1e-5);
      expect_near(result.parameters, plain.parameters, 1e-5);
    }
  }
}

TEST(ReplicaGroup, TheExchangeHearsOfEveryLayer) {
  KokkosStageOptions options = small_options();
  HashedTokens source(options.shape, options.model.vocab);
  ReplicaGroup group = group_of(options, {.mode = ReplicaMode::sdp}, 2, 0.5, source);
  group.step(0);
  EXPECT_EQ(group.calls_of_gradient_done, 2 * 3 * 6);  // replicas, microbatches, layers
  EXPECT_EQ(group.calls_with_last, 2 * 6);
}

TEST(ReplicaGroup, QuestionsOfTheExecutorGoToTheExchange) {
  class Slow : public LayerExchange {
   public:
    void fetch(int, int) override {}
    void assemble(int, const Vector<float>&) override {}
    void gradient_begins(int) override {}
    void gradient_done(int, bool) override {}
    bool gradients_ready(std::int64_t update) override { return update != 3; }
    void weights_changed(std::int64_t update) override { changed = update; }
    bool weights_ready() override { return changed < 0; }
    std::vector<double> sum_over_replicas(const std::vector<double>& mine) override { return mine; }
    void progress() override { ++calls; }
    std::size_t bytes() const override { return 0; }
    std::int64_t changed = -1;
    int calls = 0;
  } exchange;
  KokkosStageOptions options = small_options();
  options.layers = {true, 0, 4, true};
  HashedTokens source(options.shape, options.model.vocab);
  KokkosStage stage(options, source);
  EXPECT_TRUE(stage.gradients_ready(3));
  EXPECT_TRUE(stage.weights_ready());
  stage.attach(exchange);
  EXPECT_FALSE(stage.gradients_ready(3));
  EXPECT_TRUE(stage.gradients_ready(4));
  EXPECT_TRUE(stage.weights_ready());
  stage.forward(0, 0, -1, -1);
  EXPECT_GE(exchange.calls, 5);
  stage.update(0);
  EXPECT_EQ(exchange.changed, 0);
  EXPECT_FALSE(stage.weights_ready());
}

}  // namespace
}  // namespace minipipe::core::test
