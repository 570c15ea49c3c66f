#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "core/bench/bench.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/bench/decks.hpp"

namespace minipipe::core {
namespace {

TEST(Quartiles, InterpolatesBetweenSortedSamples) {
  const Quartiles odd = quartiles({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(odd.lower, 2);
  EXPECT_DOUBLE_EQ(odd.median, 3);
  EXPECT_DOUBLE_EQ(odd.upper, 4);
  const Quartiles even = quartiles({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(even.lower, 1.75);
  EXPECT_DOUBLE_EQ(even.median, 2.5);
  EXPECT_DOUBLE_EQ(even.upper, 3.25);
  EXPECT_DOUBLE_EQ(quartiles({7}).median, 7);
  EXPECT_THROW(quartiles({}), RunError);
}

TEST(Measure, ShortCallsShareASample) {
  int calls = 0;
  const Timing timing = measure({}, 3, [&] { ++calls; });
  EXPECT_GT(timing.calls, 1);
  EXPECT_GE(calls, 3 * timing.calls);
  EXPECT_GT(timing.seconds.median, 0);
  EXPECT_LE(timing.best, timing.seconds.lower);
  EXPECT_LE(timing.seconds.lower, timing.seconds.upper);
}

// Sides 512, 2304 and 768 are GPT-2's at 512 rows: only the projection's differ by less than a factor of two.
TEST(References, CubicProduct) {
  const ModelConfig gpt2{.family = "gpt2", .layers = 12, .width = 768, .heads = 12, .vocab = 50257, .context = 1024};
  const GemmShape cubic = cubic_gemm(gpt2, {.microbatch_size = 2, .sequence = 256});
  EXPECT_EQ(std::multiset<std::int64_t>({cubic.m, cubic.n, cubic.k}), (std::multiset<std::int64_t>{512, 768, 768}));
  // Where no product is cubic, the one that is least stretched: the projection's sides differ by 16, the others' by more.
  const ModelConfig narrow{.family = "gpt2", .layers = 1, .width = 64, .heads = 1, .vocab = 999, .context = 4};
  const GemmShape least = cubic_gemm(narrow, {.microbatch_size = 1, .sequence = 4});
  EXPECT_EQ(std::multiset<std::int64_t>({least.m, least.n, least.k}), (std::multiset<std::int64_t>{4, 64, 64}));
}

TEST(GroupOf, ComponentOfTheLabel) {
  EXPECT_EQ(group_of("minipipe::layer_norm::forward"), "layer_norm");
  EXPECT_EQ(group_of("minipipe::gemm::onednn"), "gemm");
  EXPECT_EQ(group_of("deep_copy"), "deep_copy");
  EXPECT_EQ(group_of("Kokkos::View::initialization"), "kokkos");
}

const KernelResult& find(const std::vector<KernelResult>& kernels, const std::string& name) {
  for (const KernelResult& kernel : kernels) {
    if (kernel.name == name) return kernel;
  }
  throw RunError("no kernel " + name);
}

// The work by hand: 16 rows, width 16, hidden 64, vocabulary 11, sequence 8, two heads.
TEST(Kernels, WorkAndUse) {
  const Deck deck = test::tiny_deck("gpt2");
  References references({}, 3);
  references.measure_gemms({.family = "gpt2", .layers = 2, .width = 16, .heads = 2, .vocab = 11, .context = 8},
                           {.microbatch_size = 2, .sequence = 8});
  const auto kernels = bench_kernels(deck, 3, references);
  std::set<std::string> names;
  for (const KernelResult& kernel : kernels) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name;
    EXPECT_GT(kernel.timing.seconds.median, 0) << kernel.name;
    EXPECT_TRUE(std::isfinite(kernel.share) && kernel.share > 0) << kernel.name;
    EXPECT_DOUBLE_EQ(kernel.share, kernel.rate / kernel.reference) << kernel.name;
    EXPECT_EQ(kernel.flops > 0, kernel.limit == "gemm") << kernel.name;
  }
  const double array = 4 * 16 * 16, hidden = 4 * array;
  EXPECT_EQ(find(kernels, "linear::forward up").flops, 2 * 16 * 64 * 16);
  EXPECT_EQ(find(kernels, "linear::backward_weight head").flops, 2 * 16 * 11 * 16);
  EXPECT_EQ(find(kernels, "attention::forward").flops, 2 * 16 * 16 * 8);
  EXPECT_EQ(find(kernels, "attention::backward").flops, 4 * 16 * 16 * 8);
  EXPECT_EQ(find(kernels, "layer_norm::forward").bytes, 2 * array);
  EXPECT_EQ(find(kernels, "layer_norm::backward_input").bytes, 4 * array);
  EXPECT_EQ(find(kernels, "layer_norm::backward_input").working_set, 3 * array);
  EXPECT_EQ(find(kernels, "residual::add").bytes, 3 * array);
  EXPECT_EQ(find(kernels, "gelu::bias_forward").bytes, 3 * hidden);
  EXPECT_EQ(find(kernels, "swiglu::backward").bytes, 5 * hidden);
  EXPECT_EQ(find(kernels, "cross_entropy::gradient").bytes, 2 * 4 * 16 * 11);
  // Four matrices of a block as Muon sees them: three of 16 x 16 in the fused projection, 16 x 16, 64 x 16, 16 x 64.
  EXPECT_EQ(find(kernels, "muon::update").flops, 5 * (4 * (4 * 16 * 256 + 2 * 4096) + 2 * (4 * 16 * 1024 + 2 * 4096)));
  EXPECT_TRUE(find(kernels, "layer_norm::forward").used);
  EXPECT_FALSE(find(kernels, "rms_norm::forward").used);
  EXPECT_TRUE(find(kernels, "adamw::update").used);
  EXPECT_FALSE(find(kernels, "muon::update").used);
  for (const char* name :
       {"rms_norm::backward_input", "rms_norm::backward_parameters", "layer_norm::backward_parameters", "gelu::backward",
        "swiglu::forward", "rotary::apply", "dropout::apply", "dropout::residual_add", "embedding::forward",
        "embedding::backward", "cross_entropy::loss", "nadam::update", "bias::add", "bias::gradient",
        "linear::backward_input qkv", "linear::forward projection", "linear::forward down"}) {
    EXPECT_NO_THROW(find(kernels, name));
  }
}

TEST(Kernels, OfTheOtherFamily) {
  Deck deck = test::tiny_deck("llama");
  deck.train.optimizer = "muon";
  References references({}, 3);
  references.measure_gemms({.family = "llama", .layers = 2, .width = 16, .heads = 2, .vocab = 11, .context = 8, .kv_heads = 1},
                           {.microbatch_size = 2, .sequence = 8});
  const auto kernels = bench_kernels(deck, 3, references);
  EXPECT_TRUE(find(kernels, "rms_norm::forward").used);
  EXPECT_TRUE(find(kernels, "rotary::apply").used);
  EXPECT_FALSE(find(kernels, "gelu::backward").used);
  EXPECT_FALSE(find(kernels, "bias::add").used);
  EXPECT_TRUE(find(kernels, "muon::update").used);
  EXPECT_EQ(find(kernels, "linear::forward kv").flops, 2 * 16 * 8 * 16);
}

// Linear layers are then those of bf16, against a rate of such matrices; all else stays as it is.
TEST(Kernels, OfADeckInBf16) {
  Deck deck = test::tiny_deck("gpt2");
  deck.precision.compute = "bf16";
  References references({}, 3);
  references.measure_gemms({.family = "gpt2", .layers = 2, .width = 16, .heads = 2, .vocab = 11, .context = 8},
                           {.microbatch_size = 2, .sequence = 8}, true);
  ASSERT_EQ(references.gemms().size(), 3u);
  EXPECT_TRUE(references.gemms()[2].bf16);
  int linear = 0;
  for (const KernelResult& kernel : bench_kernels(deck, 3, references)) {
    const bool is_linear = kernel.name.rfind("linear::", 0) == 0;
    linear += is_linear;
    EXPECT_EQ(kernel.limit == "gemm_bf16", is_linear) << kernel.name;
    if (is_linear) {
      EXPECT_EQ(kernel.reference, references.bf16_gemm_gflops()) << kernel.name;
    }
    // Rows of 16 and 64 and the weights once; the gradient of float twice.
    if (kernel.name == "linear::forward up") {
      EXPECT_EQ(kernel.bytes, 2 * (16 * (16 + 64) + 16 * 64));
    }
    if (kernel.name == "linear::backward_weight up") {
      EXPECT_EQ(kernel.bytes, 2 * 16 * (16 + 64) + 2 * 4 * 16 * 64);
    }
  }
  EXPECT_EQ(linear, 3 * 5);
}

TEST(Step, GroupsAndOverheadMakeTheStep) {
  const StepResult step = bench_step(test::tiny_deck("gpt2"), 3);
  std::set<std::string> names;
  double sum = step.overhead_share;
  for (const GroupTime& group : step.groups) {
    names.insert(group.name);
    sum += group.share;
  }
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_GE(step.overhead_share, 0);
  for (const char* name : {"gemm", "attention", "layer_norm", "gelu", "cross_entropy", "embedding", "adamw", "bias"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("kokkos"));
  // Per microbatch and block 4 products forward and 8 backward, for the head 1 and 2.
  std::map<std::string, std::int64_t> calls;
  for (const GroupTime& group : step.groups) calls[group.name] = group.calls;
  EXPECT_EQ(calls["gemm"], 2 * (2 * 12 + 3));
  EXPECT_EQ(calls["attention"], 2 * 2 * 2);
  EXPECT_GE(calls["adamw"], 1);
  EXPECT_DOUBLE_EQ(step.tokens_per_s * step.seconds.median, 2 * 2 * 8);
  EXPECT_EQ(step.events.allocations, 0);
  EXPECT_GT(step.memory_bytes, 0);
}

TEST(Bench, RefusesTooFewSamples) {
  EXPECT_THROW(run_bench(test::tiny_deck("gpt2"), 2), InputError);
  EXPECT_NO_THROW(check_repeat(3));
  Deck impossible = test::tiny_deck("gpt2");
  impossible.model.heads = 3;
  EXPECT_THROW(run_bench(impossible, 3), InputError);
}

}  // namespace
}  // namespace minipipe::core
