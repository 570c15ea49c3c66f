#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "unit_tests/core/model/outcome.hpp"
#include "unit_tests/core/model/random_model.hpp"

namespace minipipe::core::test {
namespace {

// Three chunks, the last one odd.
constexpr int rows = 557, width = 22, vocab = 37;

template <class T>
std::vector<double> to_host(const Vector<T>& values) {
  Kokkos::fence();
  std::vector<T> host(values.size());
  Kokkos::deep_copy(Kokkos::View<T*, Kokkos::LayoutRight, HostSpace, Unmanaged>(host.data(), host.size()), values);
  return {host.begin(), host.end()};
}

template <class T>
OwnedVector<T> to_device(const std::vector<double>& values) {
  const std::vector<T> host(values.begin(), values.end());
  OwnedVector<T> array("values", host.size());
  Kokkos::deep_copy(array, Kokkos::View<const T*, Kokkos::LayoutRight, HostSpace, Unmanaged>(host.data(), host.size()));
  return array;
}

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
  const auto memory_of = [](const std::string& label, const Layout& part) {
    OwnedVector<C> memory(label, part.end());
    Kokkos::deep_copy(memory, std::nan(""));  // nothing may depend on what was there
    return memory;
  };
  const OwnedVector<C> slot = memory_of("slot", layout.slot), workspace = memory_of("workspace", layout.workspace),
                       scratch = memory_of("scratch", layout.scratch);
  const BlockMemory<T> memory{slot, workspace, scratch, rows};
  const auto weight = to_device<T>(normal(vocab * width, 0.3, 1));
  const auto norm_weight = to_device<C>(normal(width, 1.0, 2)), norm_bias = to_device<C>(normal(width, 0.5, 3));
  const bool bias = family == "gpt2";
  const HeadTensors<T> weights{{norm_weight, bias ? Vector<C>(norm_bias) : Vector<C>()},
                               slice_matrix<T>(weight, 0, vocab, width)};
  const OwnedVector<C> d_weight("d_weight", vocab * width), d_norm("d_norm", width), d_bias("d_bias", width);
  const HeadTensors<C> gradients{{d_norm, bias ? Vector<C>(d_bias) : Vector<C>()}, slice_matrix<C>(d_weight, 0, vocab, width)};
  Kokkos::deep_copy(d_weight, C(0.125));  // gradients are added
  const OwnedVector<std::int32_t> targets("targets", rows);
  const auto host_targets = some_targets();
  Kokkos::deep_copy(targets, Kokkos::View<const std::int32_t*, HostSpace, Unmanaged>(host_targets.data(), rows));
  const auto input = to_device<T>(normal(rows * width, 1.0, 4));
  Kokkos::deep_copy(flatten(memory.matrix(at.input, width)), input);
  const OwnedVector<C> losses("losses", rows);
  const OwnedMatrix<T> gradient("gradient", rows, width);

  Passed result;
  head_forward<T>(context, weights, at, memory, targets, losses);
  result.losses = to_host<C>(losses);
  Kokkos::deep_copy(losses, C(-1));
  if (kind == HeadLogits::once) return result;
  if (kind == HeadLogits::again) {
    Kokkos::deep_copy(workspace, std::nan(""));
    Kokkos::deep_copy(scratch, std::nan(""));
  }
  head_backward_logits<T>(context, weights, at, work, memory, targets, C(loss_scale), losses, gradients.weight);
  head_backward_norm<T>(context, weights, at, work, memory, gradient);
  if (kind == HeadLogits::kept) head_matrix_backward_weight<T>(context, gradients, at, memory);
  head_norm_backward_weight<T>(context, gradients, at, work, memory);
  result.losses_again = to_host<C>(losses);
  result.norm_gradient = to_host<T>(flatten(memory.matrix(work, width)));
  result.input_gradient = to_host<T>(flatten(gradient));
  result.weight_gradient = to_host<C>(d_weight);
  result.norm_weight_gradient = to_host<C>(d_norm);
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
  const auto expect_near = [](const std::vector<double>& got, const std::vector<double>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-11) << i;
  };
  expect_near(passed.losses, losses);
  expect_near(passed.losses_again, losses);
  expect_near(passed.norm_gradient, d_hidden);
  expect_near(passed.weight_gradient, d_weight);
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
