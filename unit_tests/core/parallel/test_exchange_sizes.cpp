#include <gtest/gtest.h>

#include <algorithm>

#include "core/parallel/exchange_plans.hpp"
#include "core/parallel/exchange_sizes.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/model/replicas.hpp"

namespace minipipe::core {
namespace {

const ModelConfig gpt{"gpt2", 3, 20, 4, 29, 24, false, 0.0};
const ModelConfig llama{.family = "llama", .layers = 3, .width = 16, .heads = 4, .vocab = 29, .context = 24, .hidden = 24};
const StageLayers all{true, 0, 3, true};

// Of a sum: to the others for theirs, and the own one to them.
void add(const ReducePlan& plan, std::int64_t& scattered, std::int64_t& returned) {
  for (int h = 0; h < static_cast<int>(plan.holders.size()); ++h) {
    if (h == plan.number) continue;
    scattered += plan.parts[h].floats;
    if (plan.all) returned += plan.parts[plan.number].floats;
  }
}

std::int64_t sent(const GatherPlan& plan) { return plan.source.floats * std::ssize(plan.peers); }

// By counting what the plans list.
ExchangeSizes counted(const ReplicaLayout& layout, ExchangeMemory memory) {
  const ExchangePlans plans(ExchangeLayout(layout, memory));
  ExchangeSizes sizes;
  sizes.reduce_slot_floats = plans.reduce_slot_floats;
  sizes.gather_slot_floats = plans.gather_slot_floats;
  for (const auto& parts : plans.gradients) {
    for (const ReducePlan& plan : parts) add(plan, sizes.scattered, sizes.returned);
  }
  for (const ReducePlan& plan : plans.averages) add(plan, sizes.averaged, sizes.averaged);
  for (const GatherPlan& plan : plans.weights) sizes.weights += sent(plan);
  for (const auto& layer : plans.layers) {
    sizes.layers.push_back(0);
    for (const GatherPlan& plan : layer) sizes.layers.back() += sent(plan);
  }
  return sizes;
}

void expect_as_counted(const ModelConfig& model, const ReplicaOptions& options) {
  for (const ExchangeMemory memory : {ExchangeMemory::host, ExchangeMemory::kernels}) {
    ReplicaLayout layout(model, all, options);
    ExchangeSizer sizer(layout, memory);
    for (int r = 0; r < options.replicas; ++r) {
      if (layout.move_to(r)) sizer = ExchangeSizer(layout, memory);
      const ExchangeSizes told = sizer.sizes(layout), expected = counted(layout, memory);
      EXPECT_EQ(told.reduce_slot_floats, expected.reduce_slot_floats) << r;
      EXPECT_EQ(told.gather_slot_floats, expected.gather_slot_floats) << r;
      EXPECT_EQ(told, expected) << r;
    }
  }
}

class Sizes : public ::testing::TestWithParam<ReplicaCase> {};

TEST_P(Sizes, AreWhatThePlansComeTo) {
  for (const ModelConfig& model : {gpt, llama}) {
    for (const int replicas : {3, 7}) {
      for (const std::int64_t period : {0, 2}) {
        ReplicaOptions options = GetParam().options;
        options.replicas = replicas;
        if (period > 0 && (!options.sdp() || options.sharded())) continue;
        options.average_period = period;
        if (options.sdp()) give_masks(options, all, GetParam().coverage);
        SCOPED_TRACE(model.family + " " + std::to_string(replicas) + " " + std::to_string(period));
        expect_as_counted(model, options);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, Sizes, ::testing::ValuesIn(all_replica_cases()), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(ExchangeSizer, RefusesWhatPlansRefuse) {
  ReplicaOptions options{.mode = ReplicaMode::sdp, .replicas = 3, .sharded_units = true, .average_period = 2};
  give_masks(options, all, 0.67);
  EXPECT_THROW(ExchangeSizer(ReplicaLayout(gpt, all, options), ExchangeMemory::host), InputError);
  // A layer of 50000 x 100000 numbers in two halves.
  const ModelConfig huge{"gpt2", 1, 100000, 4, 50000, 24, false, 0.0};
  const StageLayers embedding{true, 0, 0, false};
  EXPECT_THROW(ExchangeSizer(ReplicaLayout(huge, embedding, {.replicas = 2}), ExchangeMemory::host), InputError);
}

}  // namespace
}  // namespace minipipe::core
