#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/deck/schema.hpp"
#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

Deck read_input(const std::string& name) {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path().parent_path();
  const auto path = root / "inputs" / name;
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return read_deck(text.str(), name);
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

}  // namespace
}  // namespace minipipe::core
