#include <gtest/gtest.h>

#include <cmath>

#include "core/bench/step_runner.hpp"
#include "core/bench/tool_recorder.hpp"
#include "core/kernels/elementwise.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/bench/decks.hpp"

namespace minipipe::core {
namespace {

// The recorder first: it must see what the steps must not do.
TEST(ToolRecorder, CountsAllocationsAndDeepCopies) {
  const OwnedVector<float> a("minipipe::test::a", 10);
  ToolEvents events;
  {
    const ToolRecorder recorder;
    {
      const OwnedVector<float> b("minipipe::test::b", 10);
      Kokkos::deep_copy(b, a);
    }
    events = recorder.events();
  }
  EXPECT_EQ(events.allocations, 1);
  EXPECT_GE(events.allocated_bytes, 40);
  EXPECT_EQ(events.first_allocation, "minipipe::test::b");
  EXPECT_EQ(events.deallocations, 1);
  EXPECT_EQ(events.deep_copies, 1);
  EXPECT_EQ(events.deep_copied_bytes, 40);
  EXPECT_EQ(events.first_deep_copy, "minipipe::test::a to minipipe::test::b");
}

TEST(ToolRecorder, TimesKernelsByLabel) {
  const OwnedVector<float> a("minipipe::test::a", 10);
  ToolRecorder recorder;
  for (int i = 0; i < 3; ++i) fill<float>({}, a, 1.0f);
  scale<float>({}, a, 2.0f);
  EXPECT_EQ(recorder.events().kernels, 4);
  ASSERT_EQ(recorder.times().size(), 2U);
  EXPECT_EQ(recorder.times().find("minipipe::elementwise::fill")->second.calls, 3);
  EXPECT_EQ(recorder.times().find("minipipe::elementwise::scale")->second.calls, 1);
  EXPECT_GT(recorder.kernel_seconds(), 0);
  recorder.clear();
  EXPECT_EQ(recorder.events().kernels, 0);
  EXPECT_EQ(recorder.kernel_seconds(), 0);
}

TEST(ToolRecorder, ListensOnlyWhileItLives) {
  const OwnedVector<float> a("minipipe::test::a", 10);
  {
    const ToolRecorder recorder;
    EXPECT_THROW(ToolRecorder{}, RunError);
    fill<float>({}, a, 1.0f);
    EXPECT_EQ(recorder.events().kernels, 1) << "a refused recorder took the callbacks away";
  }
  fill<float>({}, a, 2.0f);  // nobody listens; a callback would use a recorder that is gone
  EXPECT_FALSE(Kokkos::Tools::profileLibraryLoaded());
}

// Every array a step needs is there before it: family, recomputation, optimizer, clipping and dropout as they come.
struct Variant {
  std::string family, recompute, optimizer, clip;
  double dropout;
};
void PrintTo(const Variant& v, std::ostream* out) {
  *out << v.family << " recompute " << v.recompute << " " << v.optimizer << " clip " << v.clip << " dropout " << v.dropout;
}

class SteadyStep : public ::testing::TestWithParam<Variant> {};

TEST_P(SteadyStep, AllocatesAndDeepCopiesNothing) {
  Deck deck = test::tiny_deck(GetParam().family);
  deck.train.recompute = GetParam().recompute;
  deck.train.optimizer = GetParam().optimizer;
  deck.train.clip = GetParam().clip;
  deck.model.dropout = GetParam().dropout;
  StepRunner runner(one_stage_options(deck));
  for (int i = 0; i < 2; ++i) runner.step();
  const ToolRecorder recorder;
  for (int i = 0; i < 2; ++i) runner.step();
  const ToolEvents& events = recorder.events();
  EXPECT_EQ(events.allocations, 0) << events.first_allocation;
  EXPECT_EQ(events.deallocations, 0);
  if constexpr (on_host) {
    EXPECT_EQ(events.deep_copies, 0) << events.first_deep_copy;
  } else {
    // Tokens go in, losses and sums of squares come out.
    EXPECT_EQ(events.deep_copies, 2 * (deck.train.microbatches + 2)) << events.first_deep_copy;
  }
  EXPECT_GT(events.kernels, 0) << "nothing was listened to";
  EXPECT_TRUE(std::isfinite(runner.last_loss()));
}

std::vector<Variant> variants() {
  std::vector<Variant> result;
  for (const char* family : {"gpt2", "llama"}) {
    for (const char* recompute : {"none", "attention", "block"}) {
      for (const char* optimizer : {"adamw", "nadam", "muon"}) result.push_back({family, recompute, optimizer, "none", 0});
    }
  }
  result.push_back({"hybrid", "none", "adamw", "none", 0});
  result.push_back({"hybrid", "block", "muon", "none", 0});
  result.push_back({"gpt2", "block", "adamw", "stage", 0.1});
  result.push_back({"gpt2", "none", "adamw", "global", 0.1});
  return result;
}
INSTANTIATE_TEST_SUITE_P(Variants, SteadyStep, ::testing::ValuesIn(variants()));

}  // namespace
}  // namespace minipipe::core
