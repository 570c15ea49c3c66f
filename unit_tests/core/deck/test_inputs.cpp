#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/deck/schema.hpp"
#include "core/deck/sweep.hpp"
#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

std::string text_of(const std::string& name) {
  const auto path = std::filesystem::path(MINIPIPE_SOURCE_DIR) / "inputs" / name;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Deck read_input(const std::string& name, const std::vector<std::string>& overrides = {}) {
  return read_deck(text_of(name), name, overrides);
}

TEST(Inputs, Quickstart) {
  const Deck deck = read_input("quickstart/quickstart.toml");
  for (const int ranks : {1, 2, 4}) EXPECT_NO_THROW(check_rules(deck, ranks)) << ranks;
  EXPECT_EQ(deck.run.steps, 160);
  EXPECT_EQ(deck.schedule.order, "dynamic");
  EXPECT_EQ(deck.schedule.synchronous_updates, 60);
  EXPECT_EQ(deck.train.microbatches, 2);
  EXPECT_EQ(deck.checkpoint.interval, 0);
  EXPECT_EQ(deck.output.evaluation_interval, 40);
}

TEST(Inputs, Verify) {
  const Deck deck = read_input("verify/verify.toml");
  for (const int ranks : {1, 2, 4, 8}) EXPECT_NO_THROW(check_rules(deck, ranks)) << ranks;
  EXPECT_EQ(deck.run.steps, 12);
  EXPECT_EQ(deck.model.layers, 8);
  EXPECT_EQ(deck.train.microbatches, 8);
  EXPECT_EQ(deck.schedule.order, "fixed");
}

TEST(Inputs, Emulate) {
  const Deck deck = read_input("verify/emulate.toml");
  EXPECT_NO_THROW(check_rules(deck, 8));
  EXPECT_NO_THROW(check_rules(deck, 1));
  EXPECT_EQ(stages_of(deck, 8), 8);
  EXPECT_TRUE(deck.emulate.enabled);
  EXPECT_EQ(deck.emulate.forward_ms, 4.0);
  EXPECT_EQ(deck.emulate.backward_ms, 8.0);
}

TEST(Inputs, LlamaStudies) {
  for (const char* name : {"llama_134m", "llama_500m", "llama_1b", "llama_small"}) {
    const Deck deck = read_input(std::string("studies/sdp/") + name + ".toml");
    EXPECT_EQ(deck.run.name, name);
    EXPECT_EQ(deck.model.family, "llama");
    for (const int ranks : {1, 2, 4}) EXPECT_NO_THROW(check_rules(deck, ranks)) << name << " " << ranks;
  }
  EXPECT_EQ(read_input("studies/sdp/llama_1b.toml").model.kv_heads, 4);
}

// What the heads of the decks say to check.
TEST(Inputs, LlamaStudiesOnEightReplicas) {
  const std::vector<std::vector<std::string>> plans{
      {},
      {"parallel.mode=zero1"},
      {"parallel.mode=fsdp", "train.recompute=block"},
      {"parallel.mode=sdp", "sdp.coverage=0.6875"},
      {"parallel.mode=sdp", "sdp.coverage=0.6875", "sdp.masking=backward"},
      {"parallel.mode=sdp", "sdp.coverage=0.6875", "sdp.unit=neuron", "sdp.neuron_groups=16"},
      {"parallel.mode=sdp", "sdp.coverage=0.6875", "sdp.fsdp=true", "train.recompute=block"},
      {"parallel.mode=sdp", "sdp.coverage=0.5"}};
  for (const char* name : {"llama_134m", "llama_500m", "llama_1b"}) {
    for (auto plan : plans) {
      plan.push_back("parallel.data=8");
      const Deck deck = read_input(std::string("studies/sdp/") + name + ".toml", plan);
      EXPECT_NO_THROW(check_rules(deck, 8)) << name << " " << plan.front();
      EXPECT_EQ(stages_of(deck, 8), 1);
    }
  }
}

TEST(Inputs, ParallelStudy) {
  const Deck deck = read_input("studies/parallel.toml");
  EXPECT_NO_THROW(check_rules(deck, 4));
  EXPECT_EQ(deck.parallel.data, 4);
  EXPECT_EQ(0.6875 * deck.model.layers, 11);
  EXPECT_THROW(check_rules(deck, 3), InputError);
}

TEST(Inputs, HybridStudy) {
  const Deck deck = read_input("studies/hybrid.toml");
  for (const int ranks : {1, 2, 4}) EXPECT_NO_THROW(check_rules(deck, ranks)) << ranks;
  EXPECT_EQ(deck.model.family, "hybrid");
  for (const char letter : {'M', '-', '*', '#'}) EXPECT_NE(deck.model.pattern.find(letter), std::string::npos) << letter;
  EXPECT_GE(deck.model.vocab, 8192) << "a large head";
}

// Each case of a sweep suits the ranks that jobs/sweep.sh starts for it.
TEST(Inputs, Sweeps) {
  struct Expected {
    const char* name;
    std::int64_t cases;
  };
  for (const auto& [name, cases] : {Expected{"paci_window", 12}, Expected{"schedules", 12}, Expected{"sdp_coverage", 8}}) {
    const std::string file = std::string("sweeps/") + name + ".toml";
    const SweepDeck sweep = read_sweep_deck(text_of(file), file);
    EXPECT_EQ(sweep.sweep.cases(), cases) << name;
    for (std::int64_t number = 0; number < cases; ++number) {
      const Deck deck = case_of(sweep, number);
      const int ranks = deck.parallel.stages * deck.parallel.data;
      EXPECT_GT(ranks, 0) << name << " " << number;
      EXPECT_NO_THROW(check_rules(deck, ranks)) << name << " " << number;
    }
  }
}

}  // namespace
}  // namespace minipipe::core
