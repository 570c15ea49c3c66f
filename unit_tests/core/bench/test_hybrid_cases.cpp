// Kernels of hybrids: which are listed for which pattern, and their work by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/bench/branches.hpp"
#include "core/bench/kernel_case.hpp"
#include "core/bench/references.hpp"
#include "core/model/flops.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

// 16 rows of width 16. Mixture: 4 experts, 2 choices, 24 features inside. State space: 4 heads of 8 features with a state of 4,
// so 32 features inside, of which with B and C 40 pass a convolution of 4.
BenchShape hybrid(const std::string& pattern) {
  BenchShape shape;
  shape.model = {.family = "hybrid",
                 .layers = static_cast<int>(pattern.size()),
                 .width = 16,
                 .heads = 2,
                 .vocab = 11,
                 .context = 8,
                 .kv_heads = 1,
                 .hidden = 48,
                 .pattern = pattern,
                 .experts = 4,
                 .expert_hidden = 24,
                 .state_size = 4,
                 .state_head_size = 8};
  shape.train = {.microbatch_size = 2, .sequence = 8};
  return shape;
}

std::vector<KernelCase> cases_of(const BenchShape& shape) {
  std::vector<KernelCase> cases;
  for (const auto build : {linear_cases, attention_cases, expert_cases, state_space_cases, norm_cases, elementwise_cases,
                           end_cases, adam_cases, muon_cases}) {
    for (KernelCase& c : build(ExecutionSpace(), shape)) cases.push_back(std::move(c));
  }
  return cases;
}

const KernelCase& find(const std::vector<KernelCase>& cases, const std::string& name) {
  for (const KernelCase& c : cases) {
    if (c.name == name) return c;
  }
  throw RunError("no case " + name);
}

// Whether all, or none, of the model's cases have these names.
void expect_listed(const std::string& pattern, const std::set<std::string>& parts, bool listed) {
  const auto cases = cases_of(hybrid(pattern));
  for (const std::string& part : parts) {
    const bool found = std::ranges::any_of(cases, [&](const KernelCase& c) { return c.name.starts_with(part); });
    EXPECT_EQ(found, listed) << pattern << ": " << part;
  }
}

const std::set<std::string> of_attention{"attention::forward",    "attention::backward",        "linear::forward q",
                                         "linear::forward kv",    "linear::forward projection", "rotary::apply",
                                         "muon::update attention"};
const std::set<std::string> of_mlp{"linear::forward up", "linear::backward_weight down", "swiglu::forward", "swiglu::backward",
                                   "muon::update mlp"};
const std::set<std::string> of_experts{"router::forward",
                                       "router::balance",
                                       "router::backward",
                                       "expert_dispatch::plan",
                                       "expert_dispatch::gather",
                                       "expert_dispatch::gather_backward",
                                       "expert_dispatch::combine",
                                       "expert_dispatch::combine_backward",
                                       "linear::forward router",
                                       "linear::forward expert_up",
                                       "linear::backward_input expert_down",
                                       "swiglu::backward expert",
                                       "muon::update experts"};
const std::set<std::string> of_state_space{"causal_conv::forward",
                                           "causal_conv::backward_input",
                                           "causal_conv::backward_parameters",
                                           "selective_scan::forward",
                                           "selective_scan::backward_input",
                                           "linear::forward state_space_xbc",
                                           "swiglu::forward state_space",
                                           "rms_norm::backward_parameters state_space",
                                           "muon::update state_space"};

TEST(HybridCases, ListedByThePattern) {
  for (const auto* parts : {&of_attention, &of_mlp, &of_experts, &of_state_space}) expect_listed("M*-#", *parts, true);
  expect_listed("*", of_attention, true);
  expect_listed("*", of_mlp, false);
  expect_listed("*", of_experts, false);
  expect_listed("*", of_state_space, false);
  expect_listed("-", of_mlp, true);
  expect_listed("-", of_attention, false);
  expect_listed("##", of_experts, true);
  expect_listed("##", of_attention, false);
  expect_listed("##", of_state_space, false);
  expect_listed("MM", of_state_space, true);
  expect_listed("MM", of_experts, false);
  expect_listed("MM", {"attention::", "rotary::", "linear::forward up", "gelu::"}, false);
}

TEST(HybridCases, NamesDifferAndAllRun) {
  std::set<std::string> names;
  for (const KernelCase& c : cases_of(hybrid("M*-#"))) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_GE(c.bytes, c.working_set) << c.name;
    EXPECT_GT(c.working_set, 0) << c.name;
    EXPECT_EQ(c.flops > 0, c.limit != Limit::copy) << c.name;
    c.run();
  }
  fence(ExecutionSpace(), "before the arrays are given back");
}

TEST(HybridCases, BytesOfAMixture) {
  const auto cases = cases_of(hybrid("#"));
  const double entry = 4;
  EXPECT_EQ(find(cases, "router::forward").bytes, entry * (2 * 16 * 4 + 2 * 16 * 2));
  EXPECT_EQ(find(cases, "expert_dispatch::plan").bytes, entry * (3 * 16 * 2 + 4 + 5));
  EXPECT_EQ(find(cases, "router::balance").bytes, entry * (16 * 4 + 3 * 4) + 8);
  EXPECT_EQ(find(cases, "router::backward").bytes, entry * (2 * 16 * 4 + 3 * 16 * 2 + 4));
  EXPECT_EQ(find(cases, "expert_dispatch::gather").bytes, entry * ((16 + 32) * 16 + 32));
  EXPECT_EQ(find(cases, "expert_dispatch::gather_backward").bytes, entry * ((2 * 16 + 32) * 16 + 32));
  EXPECT_EQ(find(cases, "expert_dispatch::gather_backward").working_set, entry * ((16 + 32) * 16 + 32));
  EXPECT_EQ(find(cases, "expert_dispatch::combine").bytes, entry * ((16 + 32) * 16 + 2 * 32));
  EXPECT_EQ(find(cases, "expert_dispatch::combine_backward").bytes, entry * ((16 + 2 * 32) * 16 + 3 * 32));
  EXPECT_EQ(find(cases, "swiglu::backward expert").bytes, entry * 5 * 32 * 24);
  // Each expert's weights once; their gradients are read and written.
  EXPECT_EQ(find(cases, "linear::forward expert_up").flops, 2 * 32 * 24 * 16);
  EXPECT_EQ(find(cases, "linear::forward expert_up").bytes, entry * (32 * (16 + 24) + 4 * 24 * 16));
  EXPECT_EQ(find(cases, "linear::backward_weight expert_down").bytes, entry * (32 * (16 + 24) + 2 * 4 * 24 * 16));
  BenchShape in_bf16 = hybrid("#");
  in_bf16.bf16 = true;
  const auto narrow = cases_of(in_bf16);
  EXPECT_EQ(find(narrow, "linear::backward_weight expert_up").limit, Limit::gemm_bf16);
  EXPECT_EQ(find(narrow, "linear::backward_weight expert_up").bytes, 2 * 32 * (16 + 24) + 2 * 4 * 4 * 24 * 16);
}

// An expert takes ceil(32 / 8 / 4) = 1 row: four of the 32 pairs are left.
TEST(HybridCases, BytesOfAMixtureThatDropsRows) {
  BenchShape shape = hybrid("#");
  shape.model.expert_capacity = 0.125;
  const auto cases = cases_of(shape);
  EXPECT_EQ(find(cases, "expert_dispatch::gather").bytes, 4 * ((16 + 4) * 16 + 32));
  EXPECT_EQ(find(cases, "expert_dispatch::combine_backward").bytes, 4 * ((16 + 2 * 4) * 16 + 3 * 32));
  EXPECT_EQ(find(cases, "linear::forward expert_up").flops, 2 * 4 * 24 * 16);
}

TEST(HybridCases, WorkOfAStateSpace) {
  const auto cases = cases_of(hybrid("M"));
  const double convolved = 4 * 16 * 40, inside = 4 * 16 * 32, dt = 4 * 16 * 4, states = 4 * 2 * 4 * 1 * 4 * 8;
  EXPECT_EQ(find(cases, "causal_conv::forward").bytes, 2 * convolved);
  EXPECT_EQ(find(cases, "causal_conv::backward_input").bytes, 4 * convolved);
  EXPECT_EQ(find(cases, "causal_conv::backward_input").working_set, 3 * convolved);
  EXPECT_EQ(find(cases, "causal_conv::backward_parameters").bytes, 2 * convolved);
  EXPECT_EQ(find(cases, "selective_scan::forward").flops, 4 * 16 * 32 * 4);
  EXPECT_EQ(find(cases, "selective_scan::forward").bytes, convolved + dt + inside + states);
  EXPECT_EQ(find(cases, "selective_scan::backward_input").flops, 8 * 16 * 32 * 4);
  EXPECT_EQ(find(cases, "selective_scan::backward_input").bytes, 2 * (convolved + dt) + inside + states + 4 * 3 * 2 * 4);
  EXPECT_EQ(find(cases, "rms_norm::backward_input state_space").bytes, 3 * inside);
  EXPECT_EQ(find(cases, "linear::forward state_space_dt").flops, 2 * 16 * 4 * 16);
}

// The cases' products, each as often as a layer has it, are those that the model's count of operations knows.
TEST(HybridCases, ProductsAddUpToTheModels) {
  const BenchShape shape = hybrid("M*-#");
  const auto cases = cases_of(shape);
  const auto sum = [&](const std::string& prefix) {
    double flops = 0;
    for (const char* layer : {"q", "kv", "kv", "projection", "up", "up", "down", "router", "expert_up", "expert_up",
                              "expert_down", "state_space_z", "state_space_xbc", "state_space_dt", "state_space_out", "head"}) {
      flops += find(cases, "linear::" + prefix + " " + layer).flops;
    }
    return flops;
  };
  const double convolution = 3 * 16 * 2.0 * 40 * 4;
  const double products = sum("forward") + sum("backward_input") + sum("backward_weight") +
                          find(cases, "attention::forward").flops + find(cases, "attention::backward").flops +
                          find(cases, "selective_scan::forward").flops + find(cases, "selective_scan::backward_input").flops;
  EXPECT_DOUBLE_EQ(products + convolution, flops_per_microbatch(shape.model, shape.train));
}

TEST(HybridCases, BranchesOfAModel) {
  const Branches gpt2 = branches_of({.family = "gpt2", .layers = 2});
  EXPECT_TRUE(gpt2.attention && gpt2.mlp && !gpt2.experts && !gpt2.state_space);
  const Branches two = branches_of(hybrid("MM-M").model);
  EXPECT_TRUE(!two.attention && two.mlp && !two.experts && two.state_space);
  EXPECT_EQ(first_of_each_kind(hybrid("MM#-M#*").model), (std::vector<int>{0, 2, 3, 6}));
}

// References are products of the layers that the model has: here none of the MLP's 48.
TEST(HybridCases, ReferencesAreOfTheModelsLayers) {
  std::multiset<std::multiset<std::int64_t>> seen;
  for (const GemmShape& g : step_gemms(hybrid("#M").model, hybrid("#M").train)) seen.insert({g.m, g.n, g.k});
  EXPECT_EQ(seen.count({16, 16, 48}), 0u);
  EXPECT_EQ(seen.count({8, 24, 16}), 6u);   // an expert's two layers with 8 of the 32 pairs
  EXPECT_EQ(seen.count({16, 4, 16}), 6u);   // the router and dt
  EXPECT_EQ(seen.count({16, 32, 16}), 6u);  // z and the way back
}

}  // namespace
}  // namespace minipipe::core
