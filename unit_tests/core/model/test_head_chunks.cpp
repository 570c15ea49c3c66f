#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "unit_tests/core/kernels/arrays.hpp"
#include "unit_tests/core/model/outcome.hpp"
#include "unit_tests/core/model/random_model.hpp"

namespace minipipe::core::test {
namespace {

using testing::Array;
using testing::expect_near;

// Three chunks, the last one odd.
constexpr int rows = 557, width = 22, vocab = 37;

std::vector<std::int32_t> some_targets() {
  std::vector<std::int32_t> targets(rows);
  for (int r = 0; r < rows; ++r) targets[r] = r % 5 == 3 ? -1 : r * 7 % vocab;  // negative: not counted
  return targets;
}

struct Passed {
  std::vector<double> losses, losses_again, norm_gradient, input_gradient, weight_gradient, norm_weight_gradient;
  friend bool operator==(const Passed&, const Passed&) = default;
};

constexpr double loss_scale = 0.25;

// Forward and backward of a head alone.
template <class T>
Passed pass(const std::string& family, HeadLogits kind) {
  using C = Compute<T>;
  LayerContext context;
  context.model = {family, 1, width, 2, vocab, rows, false, 0.0};
  context.shape = {1, rows};
  BlockLayout layout;
  layout.per_wide = elements_per_wide<T>;
  const HeadActivations at = head_activations(layout, context.model, context.shape, kind);
  const Place work = head_gradient(layout, context.model, context.shape);
  // Of not-a-numbers: nothing may depend on what was there.
  const Array<C> slot(layout.slot.end()), workspace(layout.workspace.end()), scratch(layout.scratch.end());
  const BlockMemory<T> memory{slot.vector(), workspace.vector(), scratch.vector(), rows};
  const Array<T> weight(normal(vocab * width, 0.3, 1));
  const Array<C> norm_weight(normal(width, 1.0, 2)), norm_bias(normal(width, 0.5, 3));
  const bool bias = family == "gpt2";
  const HeadTensors<T> weights{{norm_weight.vector(), bias ? norm_bias.vector() : Vector<C>()}, weight.matrix(vocab, width)};
  const std::vector<double> zeros(width, 0.0);
  const Array<C> d_weight(std::vector<double>(vocab * width, 0.125)), d_norm(zeros), d_bias(zeros);  // gradients are added
  const HeadTensors<C> gradients{{d_norm.vector(), bias ? d_bias.vector() : Vector<C>()}, d_weight.matrix(vocab, width)};
  const OwnedVector<std::int32_t> targets = testing::integers(some_targets());
  const Array<T> input(normal(rows * width, 1.0, 4));
  Kokkos::deep_copy(flatten(memory.matrix(at.input, width)), input.vector());
  const Array<C> losses(rows);
  const Array<T> gradient(rows * width);

  Passed result;
  head_forward<T>(context, weights, at, memory, targets, losses.vector());
  result.losses = losses.get();
  Kokkos::deep_copy(losses.vector(), C(-1));
  if (kind == HeadLogits::once) return result;
  if (kind == HeadLogits::again) {
    Kokkos::deep_copy(workspace.vector(), std::nan(""));
    Kokkos::deep_copy(scratch.vector(), std::nan(""));
  }
  head_backward_logits<T>(context, weights, at, work, memory, targets, C(loss_scale), losses.vector(), gradients.weight);
  head_backward_norm<T>(context, weights, at, work, memory, gradient.matrix(rows, width));
  if (kind == HeadLogits::kept) head_matrix_backward_weight<T>(context, gradients, at, memory);
  head_norm_backward_weight<T>(context, gradients, at, work, memory);
  result.losses_again = losses.get();
  const std::vector<T> norm_gradient = testing::read(flatten(memory.matrix(work, width)));
  result.norm_gradient.assign(norm_gradient.begin(), norm_gradient.end());
  result.input_gradient = gradient.get();
  result.weight_gradient = d_weight.get();
  result.norm_weight_gradient = d_norm.get();
  return result;
}

TEST(HeadChunks, AreAnEighthOfManyRowsAndNotTooSmall) {
  for (int count = 1; count < 40000; count += 61) {
    const int chunk = head_chunk_rows(count);
    EXPECT_EQ(chunk % 32, 0);
    EXPECT_GE(chunk, 256);
    if (count >= 8 * 256) {
      EXPECT_LT(chunk, count / 8 + 1 + 32);
      EXPECT_GE(8 * chunk, count);
    }
  }
  EXPECT_EQ(head_chunk_rows(16384), 2048);
}

template <class T>
void expect_the_same_bits() {
  for (const char* family : {"gpt2", "llama"}) {
    const Passed kept = pass<T>(family, HeadLogits::kept), again = pass<T>(family, HeadLogits::again);
    EXPECT_EQ(kept.losses, again.losses);
    EXPECT_EQ(kept.losses_again, again.losses_again);
    EXPECT_EQ(kept.input_gradient, again.input_gradient);
    EXPECT_EQ(kept.weight_gradient, again.weight_gradient);
    EXPECT_TRUE(kept == again);
    EXPECT_EQ(pass<T>(family, HeadLogits::once).losses, kept.losses);
    for (const double value : again.weight_gradient) ASSERT_TRUE(std::isfinite(value));
    for (const double value : again.input_gradient) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(HeadChunks, LogitsThatAreComputedAgainGiveTheSameBits) {
  expect_the_same_bits<float>();
  expect_the_same_bits<double>();
  expect_the_same_bits<bf16>();
}

// The RMSNorm's output, logits, losses and gradients in plain loops, without chunks.
TEST(HeadChunks, GiveWhatTheWholeGives) {
  const auto input = normal(rows * width, 1.0, 4), weight = normal(vocab * width, 0.3, 1), norm = normal(width, 1.0, 2);
  const auto targets = some_targets();
  std::vector<double> losses(rows, 0.0), d_weight(vocab * width, 0.125), d_hidden(rows * width, 0.0);
  for (int r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    double squares = 0;
    for (int c = 0; c < width; ++c) squares += input[r * width + c] * input[r * width + c];
    std::vector<double> hidden(width), p(vocab);
    for (int c = 0; c < width; ++c) {
      hidden[c] = input[r * width + c] / std::sqrt(squares / width + norm_epsilon) * norm[c];
    }
    double sum = 0;
    for (int v = 0; v < vocab; ++v) {
      double logit = 0;
      for (int c = 0; c < width; ++c) logit += hidden[c] * weight[v * width + c];
      sum += p[v] = std::exp(logit);
    }
    losses[r] = -std::log(p[targets[r]] / sum);
    for (int v = 0; v < vocab; ++v) {
      const double d = loss_scale * (p[v] / sum - (v == targets[r] ? 1 : 0));
      for (int c = 0; c < width; ++c) {
        d_weight[v * width + c] += d * hidden[c];
        d_hidden[r * width + c] += d * weight[v * width + c];
      }
    }
  }
  const Passed passed = pass<double>("llama", HeadLogits::again);
  expect_near(passed.losses, losses, 1e-11);
  expect_near(passed.losses_again, losses, 1e-11);
  expect_near(passed.norm_gradient, d_hidden, 1e-11);
  expect_near(passed.weight_gradient, d_weight, 1e-11);
}

// Rows of two chunks, the second one odd.
KokkosStageOptions long_rows(KokkosStageOptions options, bool tied, Precision precision) {
  options.model.context = 101;
  options.model.tied = tied;
  options.shape = {3, 101};
  options.precision = precision;
  return options;
}

// In a stage with everything around it, dropout on, over several updates and stages.
TEST(HeadChunks, RecomputationOfLongMicrobatchesGivesTheSameToTheLastBit) {
  for (const KokkosStageOptions& family : {small_options(), small_llama()}) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      for (const bool tied : {false, true}) {
        KokkosStageOptions options = long_rows(family, tied, precision);
        ASSERT_LT(head_chunk_rows(options.shape.rows()), options.shape.rows());
        const Outcome plain = train(options, 1, {}, 2);
        for (const Recompute kind : {Recompute::attention, Recompute::block}) {
          options.recompute = kind;
          for (const bool split : {false, true}) {
            options.split_backward = split;
            expect_same(plain, train(options, 1, {}, 2));
            if (!tied) expect_same(plain, train(options, 2, {}, 2));
          }
        }
      }
    }
  }
}

TEST(HeadChunks, LogitsOfAChunkOnlyAreInMemory) {
  for (const bool tied : {false, true}) {
    KokkosStageOptions options = long_rows(small_llama(), tied, Precision::fp32);
    options.model.vocab = 5000;
    options.layers = {true, 0, 4, true};
    options.activation_slots = 1;
    const auto activations = [&](Recompute kind) {
      options.recompute = kind;
      return planned_memory(options).activations;
    };
    const std::size_t logits = sizeof(float) * 5000;
    EXPECT_GT(activations(Recompute::attention), 303 * logits);
    EXPECT_LT(activations(Recompute::block), 303 * logits);
    options.split_backward = true;
    EXPECT_GT(activations(Recompute::block), 303 * logits);  // the weight half needs them
  }
}

}  // namespace
}  // namespace minipipe::core::test
