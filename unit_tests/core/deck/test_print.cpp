#include <limits>
#include <set>

#include "core/deck/help.hpp"
#include "core/deck/print.hpp"
#include "core/deck/schema.hpp"
#include "core/deck/suggest.hpp"
#include "core/deck/sweep.hpp"
#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A deck in which every key differs from its default.
Deck other_deck() {
  Deck deck;
  for (const Entry& entry : schema()) {
    const Value value = entry.get(deck);
    switch (entry.type) {
      case Type::boolean:
        entry.set(deck, Value(!std::get<bool>(value)));
        break;
      case Type::integer:
        entry.set(deck, Value(std::get<std::int64_t>(value) + 3));
        break;
      case Type::real:
        entry.set(deck, Value(std::get<double>(value) / 3 + 1.0 / 7));
        break;
      case Type::text: {
        const auto& choices = entry.limits.choices;
        if (choices.empty()) {
          entry.set(deck, Value(std::string("a \"b\" \\c\t\xc3\xa4 # d\n\x01")));
        } else {
          entry.set(deck, Value(choices.front() == std::get<std::string>(value) ? choices.back() : choices.front()));
        }
        break;
      }
      case Type::integers:
        entry.set(deck, Value(std::vector<std::int64_t>{1, 2147483647}));
        break;
      case Type::reals:
        entry.set(deck, Value(std::vector<double>{1.0, 0.1, 1e300}));
        break;
    }
  }
  return deck;
}

TEST(Print, ReadsBackEqual) {
  const Deck deck = other_deck();
  const Deck defaults;
  for (const Entry& entry : schema()) EXPECT_NE(entry.get(deck), entry.get(defaults)) << entry.name();
  EXPECT_EQ(read_deck(print_deck(deck), "d.toml"), deck);
  EXPECT_EQ(read_deck(print_deck(defaults), "d.toml"), defaults);
}

TEST(Print, FloatsKeepThePointAndAllDigits) {
  EXPECT_EQ(to_toml(Value(4.0)), "4.0");
  EXPECT_EQ(to_toml(Value(0.1)), "0.1");
  EXPECT_EQ(to_toml(Value(1e-8)), "1.0e-08");
  EXPECT_EQ(to_toml(Value(1.0 / 3)), "0.3333333333333333");
  EXPECT_EQ(to_toml(Value(-2.5e30)), "-2.5e+30");
  EXPECT_EQ(to_toml(Value(std::vector<double>{1, 2.5})), "[1.0, 2.5]");
  EXPECT_EQ(to_toml(Value(std::numeric_limits<double>::infinity())), "inf");
}

TEST(Print, SaysWhereValuesCameFrom) {
  const Deck deck = read_deck("[run]\nsteps = 3\n", "d.toml", {"run.seed=9"});
  const std::string text = print_deck(deck);
  EXPECT_THAT(text, HasSubstr("\nsteps = 3  # d.toml:2\n"));
  EXPECT_THAT(text, HasSubstr("\nseed = 9  # command line\n"));
  EXPECT_THAT(text, HasSubstr("\ngrace = 30.0\n"));
  EXPECT_THAT(print_deck(deck, false), Not(HasSubstr("#")));
}

TEST(Print, HashDependsOnSettingsOnly) {
  const Deck a = read_deck("[run]\nsteps = 3\n", "a.toml");
  const Deck b = read_deck("\n\n[run]\nseed = 1\n", "b.toml", {"run.steps=3"});
  EXPECT_EQ(deck_hash(a), deck_hash(b));
  for (const Entry& entry : schema()) {
    Deck changed;
    entry.set(changed, entry.get(other_deck()));
    EXPECT_NE(deck_hash(changed), deck_hash(Deck())) << entry.name();
  }
}

TEST(Print, HashIsFnv1a) {
  // The same hash, computed anew from the text: it must not depend on the process.
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : print_deck(Deck(), false)) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  EXPECT_EQ(deck_hash(Deck()), hash);
}

TEST(Schema, DefaultsAreAllowedAndNamesDiffer) {
  std::set<std::string> names;
  for (const Entry& entry : schema()) {
    EXPECT_TRUE(names.insert(entry.name()).second) << entry.name();
    EXPECT_FALSE(entry.doc.empty()) << entry.name();
    EXPECT_EQ(find_entry(entry.block, entry.key), &entry);
  }
  EXPECT_EQ(find_entry("run", "nothing"), nullptr);
  // The printed defaults pass the parser's checks.
  EXPECT_EQ(read_error(print_deck(Deck())), "");
}

TEST(Help, ListsEveryKeyWithDefaultAndMeaning) {
  const std::string plain = help_deck();
  const std::string markdown = help_markdown();
  const Deck defaults;
  for (const Entry& entry : schema()) {
    const std::string value = to_toml(entry.get(defaults));
    const std::string line = "\n" + entry.key + " = " + value + (entry.may_change_at_restart ? "  # *\n" : "\n");
    EXPECT_THAT(plain, HasSubstr(line + "#     " + entry.doc + "\n"));
    EXPECT_THAT(markdown, HasSubstr("| `" + entry.key + "` | "));
    EXPECT_THAT(markdown, HasSubstr(" | `" + value + "` | "));
  }
  for (const BlockDoc& block : schema_blocks()) {
    EXPECT_THAT(plain, HasSubstr("\n[" + block.name + "]  # " + block.doc + "\n"));
    EXPECT_THAT(markdown, HasSubstr("### `[" + block.name + "]`"));
  }
  EXPECT_THAT(plain, HasSubstr("float, 0 <= value < 1"));
  EXPECT_THAT(plain, HasSubstr("string, fp32 | bf16"));
  EXPECT_THAT(markdown, HasSubstr("fp32 \\| bf16")) << "a bare bar would end the cell";
}

TEST(Help, IsADeckOfTheDefaults) {
  std::string text = help_deck();
  ASSERT_EQ(read_error(text), "");
  EXPECT_EQ(read_deck(text, "d.toml"), Deck());
  // The example of a sweep, without its comment signs: three seeds by two pairs.
  const auto example = text.find("# [sweep]\n");
  ASSERT_NE(example, std::string::npos);
  for (auto line = example; line < text.size(); line = text.find('\n', line) + 1) text.erase(line, 2);
  EXPECT_EQ(read_sweep_deck(text, "d.toml").sweep.cases(), 6);
}

TEST(Suggest, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("", "ab"), 2);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("trian", "train"), 1) << "a swap is one slip";
  EXPECT_EQ(edit_distance("steps", "step"), 1);
}

TEST(Suggest, OnlyWhatIsNear) {
  EXPECT_EQ(nearest("seqence", {"seed", "sequence"}), "sequence");
  EXPECT_EQ(nearest("completely", {"seed", "sequence"}), std::nullopt);
  EXPECT_EQ(nearest("x", {"y"}), std::nullopt);
}

}  // namespace
}  // namespace minipipe::core
