#include <limits>

#include "core/deck/schema.hpp"
#include "core/deck/text.hpp"
#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReadDeck, AnEmptyDeckHasTheDefaults) {
  const Deck deck = read_deck("", "d.toml");
  EXPECT_EQ(deck, Deck());
  EXPECT_TRUE(deck.origins.empty());
  EXPECT_DOUBLE_EQ(deck.run.grace, 30.0);
  EXPECT_DOUBLE_EQ(deck.run.watchdog, 300.0);
  EXPECT_EQ(deck.parallel.stages, 0);
  EXPECT_EQ(deck.output.evaluation_batches, 8);
  EXPECT_EQ(deck.output.log_interval, 10);
  EXPECT_EQ(deck.output.progress, "auto");
  EXPECT_EQ(deck.emulate.message_bytes, 262144);
}

TEST(ReadDeck, ReadsEveryType) {
  const Deck deck = read_deck(
      "[run]\nname = \"x\"\ntime_limit = 5\n[model]\ntied = true\n[train]\nlearning_rate = 2.5e-4\n"
      "[schedule]\npartition = [3,\n 5]\n[emulate]\nstage_factors = [1, 0.5]\n",
      "d.toml");
  EXPECT_EQ(deck.run.name, "x");
  EXPECT_EQ(deck.run.time_limit, 5.0) << "a float key accepts an integer literal";
  EXPECT_TRUE(deck.model.tied);
  EXPECT_EQ(deck.train.learning_rate, 2.5e-4);
  EXPECT_THAT(deck.schedule.partition, ElementsAre(3, 5));
  EXPECT_THAT(deck.emulate.stage_factors, ElementsAre(1.0, 0.5));
}

TEST(ReadDeck, KnowsWhereValuesCameFrom) {
  const Deck deck = read_deck("[run]\n\nsteps = 3\nseed = 4\n", "d.toml", {"run.seed=5", "run.name=b"});
  EXPECT_EQ(deck.run.steps, 3);
  EXPECT_EQ(deck.run.seed, 5);
  EXPECT_EQ(deck.origins.at("run.steps"), "d.toml:3");
  EXPECT_EQ(deck.origins.at("run.seed"), "command line");
  EXPECT_EQ(deck.origins.at("run.name"), "command line");
  EXPECT_EQ(deck.origins.count("run.grace"), 0U);
}

TEST(ReadDeck, OverridesThatNoDeckCouldHoldAreRefused) {
  const auto error = [](const std::string& text) {
    return error_of([&] { read_deck("", "d.toml", {"output.directory=" + text}); });
  };
  for (const char* text : {"a\xff", "\xe9", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    EXPECT_THAT(error(text), HasSubstr("is not UTF-8; write it in UTF-8")) << text;
  }
  for (const char* text : {"r\u00e9sum\u00e9", "\u20ac", "\U0001f600", "\U0010ffff", "\ud7ff", "\u0800"}) {
    EXPECT_EQ(read_deck("", "d.toml", {std::string("output.directory=") + text}).output.directory, text);
  }
}

TEST(ReadDeck, DottedKeysAreBlocks) { EXPECT_EQ(read_deck("train.sequence = 7\n", "d.toml").train.sequence, 7); }

TEST(ReadDeck, UnknownKey) {
  EXPECT_EQ(read_error("[run]\nsteeps = 4\n"), "d.toml:2: run.steeps = 4: unknown key; did you mean run.steps?");
  EXPECT_THAT(read_error("[run]\nqqqqq = 4\n"), HasSubstr("keys of [run] are name, seed, steps"));
}

TEST(ReadDeck, KeyOfAnotherBlock) {
  EXPECT_THAT(read_error("[run]\nsequence = 4\n"),
              HasSubstr("d.toml:2: run.sequence = 4: unknown key; did you mean train.sequence?"));
  EXPECT_THAT(read_error("sequence = 4\n"), HasSubstr("outside any block: unknown key; did you mean train.sequence?"));
  EXPECT_THAT(read_error("sequense = 4\n"), HasSubstr("did you mean train.sequence?"));
  EXPECT_THAT(read_error("[run]\ninterval = 4\n"), HasSubstr("did you mean checkpoint.interval?"));
}

TEST(ReadDeck, UnknownBlock) {
  EXPECT_EQ(read_error("[run]\n[trian]\nsequence = 3\n"), "d.toml:2: [trian]: unknown block; did you mean [train]?");
  EXPECT_THAT(read_error("[zzzzzzzz]\n"), HasSubstr("blocks are run, model, data, train, schedule, parallel"));
}

TEST(ReadDeck, BlocksOfAnotherShape) {
  EXPECT_THAT(read_error("run = 3\n"), HasSubstr("d.toml:1: run: is a block: write [run]"));
  EXPECT_THAT(read_error("[[run]]\nsteps = 3\n"), HasSubstr("d.toml:1: run: is a block: write [run]"));
  EXPECT_THAT(read_error("[run.steps]\na = 3\n"), HasSubstr("run.steps = {...}: must be an integer, not a block"));
}

TEST(ReadDeck, RepeatedKey) {
  EXPECT_EQ(read_error("[run]\nsteps = 4\nsteps = 5\n"), "d.toml:3: run.steps = 5: repeated key, also at d.toml:2");
  EXPECT_EQ(read_error("[schedule]\npartition = [1,\n1]\npartition = [1,\n2]\n"),
            "d.toml:4: schedule.partition = [ 1, 2 ]: repeated key, also at d.toml:2");
}

TEST(ReadDeck, RepeatedBlockIsStillRead) {
  const std::string error = read_error("[run]\nsteps = 4\n[model]\nlayers = 3\n[run]\nsteps = 5\nseeed = 2\n");
  EXPECT_THAT(error, HasSubstr("d.toml:5: [run]: repeated block"));
  EXPECT_THAT(error, HasSubstr("d.toml:6: run.steps = 5: repeated key, also at d.toml:2"));
  EXPECT_THAT(error, HasSubstr("d.toml:7: run.seeed = 2: unknown key; did you mean run.seed?"));
  EXPECT_EQ(lines_in(error), 3U);
}

TEST(ReadDeck, WrongType) {
  EXPECT_EQ(read_error("[run]\nsteps = \"many\"\n"),
            "d.toml:2: run.steps = \"many\": must be an integer, not a string; allowed: 1 <= value <= 1000000000");
  EXPECT_THAT(read_error("[run]\nsteps = 4.0\n"), HasSubstr("run.steps = 4.0: must be an integer, not a float"));
  EXPECT_THAT(read_error("[run]\ngrace = \"4\"\n"), HasSubstr("must be a float, not a string"));
  EXPECT_THAT(read_error("[run]\nname = 4\n"), HasSubstr("run.name = 4: must be a string, not an integer"));
  EXPECT_THAT(read_error("[model]\ntied = 1\n"), HasSubstr("model.tied = 1: must be true or false, not an integer"));
  EXPECT_THAT(read_error("[model]\nlayers = true\n"), HasSubstr("model.layers = true: must be an integer, not a boolean"));
  EXPECT_THAT(read_error("[model]\nlayers = [1]\n"), HasSubstr("must be an integer, not a list"));
  EXPECT_THAT(read_error("[model]\nlayers = 1979-05-27\n"),
              HasSubstr("model.layers = 1979-05-27: must be an integer, not a date"));
  EXPECT_THAT(read_error("[schedule]\npartition = 4\n"), HasSubstr("must be a list of integers, not an integer"));
  EXPECT_THAT(read_error("[schedule]\npartition = [4, 4.0]\n"), HasSubstr("must be a list of integers, not one with a float"));
  EXPECT_THAT(read_error("[emulate]\nstage_factors = [1, \"a\"]\n"),
              HasSubstr("must be a list of floats, not one with a string"));
}

TEST(ReadDeck, OutOfRange) {
  EXPECT_EQ(read_error("[run]\nsteps = 0\n"), "d.toml:2: run.steps = 0: is out of range; allowed: 1 <= value <= 1000000000");
  EXPECT_THAT(read_error("[train]\nbeta1 = 1.0\n"), HasSubstr("train.beta1 = 1.0: is out of range; allowed: 0 <= value < 1"));
  EXPECT_THAT(read_error("[train]\nepsilon = 0\n"), HasSubstr("train.epsilon = 0: is out of range; allowed: > 0"));
  EXPECT_THAT(read_error("[train]\nlearning_rate = nan\n"),
              HasSubstr("train.learning_rate = nan: must be finite; allowed: >= 0"));
  EXPECT_THAT(read_error("[model]\nwidth = 99999999999\n"), HasSubstr("model.width = 99999999999: is above 2147483647"));
  EXPECT_THAT(read_error("[schedule]\npartition = [4, -1]\n"), HasSubstr("element 2 is out of range; allowed: >= 0"));
  EXPECT_THAT(read_error("[emulate]\nstage_factors = [0.0]\n"), HasSubstr("element 1 is out of range; allowed: > 0"));
  EXPECT_EQ(read_error("[train]\nbeta1 = 0.0\n[run]\nsteps = 1\n"), "") << "the bounds themselves";
}

TEST(ReadDeck, EveryNumberIsFinite) {
  for (const Entry& entry : schema()) {
    const bool list = entry.type == Type::reals;
    if (entry.type != Type::real && !list) continue;
    for (const std::string value : {"inf", "+inf", "-inf", "nan"}) {
      EXPECT_THAT(read_error("", {entry.name() + "=" + (list ? "[1.0, " + value + "]" : value)}), HasSubstr("must be finite"));
    }
  }
}

// Larger numbers overflow sums and products of 64 bits.
TEST(ReadDeck, EveryIntegerHasALimit) {
  for (const Entry& entry : schema()) {
    const bool list = entry.type == Type::integers;
    if ((entry.type != Type::integer && !list) || entry.key == "seed") continue;
    const std::string most = std::to_string(std::numeric_limits<std::int64_t>::max());
    EXPECT_THAT(read_error("", {entry.name() + "=" + (list ? "[" + most + "]" : most)}),
                AnyOf(HasSubstr(most + ": is above "), HasSubstr("element 1 is out of range")));
  }
  EXPECT_THAT(read_error("", {"emulate.message_bytes=9223372036854775807"}),
              HasSubstr("is above 1073741824; allowed: 1 <= value <= 1073741824"));
  EXPECT_THAT(read_error("", {"train.microbatches=9223372036854775807"}),
              HasSubstr("is above 1000000; allowed: 1 <= value <= 1000000"));
  EXPECT_EQ(read_error("", {"train.microbatches=1000000"}), "");
}

TEST(ReadDeck, LongValuesAreCut) {
  std::string list = "[1";
  for (int i = 0; i < 9999; ++i) list += ", 1";
  const std::string text = std::string(99, 'a') + "\u00e4" + std::string(99, 'b') + std::string(10000, 'c');
  for (const std::string& error :
       {read_error("", {"schedule.partition=x" + list}), read_error("[schedule]\npartition = " + list + ", -1]\n"),
        read_error("", {"schedule.partition=" + list + ", 1]", "a" + list}), rules_error({"schedule.partition=" + list + "]"}),
        read_error("[train]\nclip = \"" + text + "\"\n"), rules_error({"model.family=hybrid", "model.pattern=" + text})}) {
    EXPECT_NE(error, "");
    EXPECT_LT(error.size(), 2000U) << error;
    EXPECT_THAT(error, HasSubstr("... ("));
  }
  EXPECT_EQ(shortened(std::string(200, 'a')), std::string(200, 'a'));
  EXPECT_EQ(shortened(std::string(199, 'a') + "\u00e4"), std::string(199, 'a') + "... (201 bytes)") << "not half a letter";
}

TEST(ReadDeck, UnknownChoice) {
  EXPECT_EQ(read_error("[train]\nclip = \"globl\"\n"),
            "d.toml:2: train.clip = \"globl\": unknown choice, did you mean \"global\"?; allowed: none | global | stage");
  EXPECT_THAT(read_error("[precision]\ncompute = \"integer\"\n"), HasSubstr("unknown choice; allowed: fp32 | bf16"));
}

TEST(ReadDeck, SyntaxErrorsAreReportedTogetherAndTheRestIsRead) {
  const std::string error = read_error("[run]\nname = paci\nsteps =\nresume = \"a\nseed = -1\n[model\nlayers = 0\n");
  EXPECT_THAT(error, HasSubstr("d.toml:2: not valid TOML at column 8"));
  EXPECT_THAT(error, HasSubstr("strings need quotes\nd.toml:3: not valid TOML"));
  EXPECT_THAT(error, HasSubstr("d.toml:4: not valid TOML"));
  EXPECT_THAT(error, HasSubstr("d.toml:5: run.seed = -1: is out of range"));
  EXPECT_THAT(error, HasSubstr("d.toml:6: not valid TOML at column 7: table header"));
  EXPECT_THAT(error, HasSubstr("d.toml:7: model.layers = 0: is out of range"));
  EXPECT_EQ(lines_in(error), 6U) << error;
  EXPECT_THAT(read_error("[run]\nsteps = 4 5\n"), Not(HasSubstr("quotes")));
}

TEST(ReadDeck, AnOpenListHidesWhatFollows) {
  const std::string error = read_error("[schedule]\npartition = [1, 2\nreplay = \"\"\n");
  EXPECT_THAT(error, HasSubstr("d.toml:3: not valid TOML at column 1: array: expected comma or closing ']'"));
  EXPECT_EQ(lines_in(error), 1U) << error;
}

TEST(ReadDeck, AllErrorsAtOnceInTheOrderOfTheFile) {
  const std::string error =
      read_error("[train]\nsequence = 0\n[model]\nlayer = 3\n[run]\nsteps = 1.5\n[oputut]\n", {"run.seed=-1"});
  const auto at = [&error](const char* text) { return error.find(text); };
  ASSERT_EQ(lines_in(error), 5U) << error;
  EXPECT_EQ(at("d.toml:2: "), 0U);
  EXPECT_LT(at("d.toml:2: "), at("d.toml:4: "));
  EXPECT_LT(at("d.toml:4: "), at("d.toml:6: "));
  EXPECT_LT(at("d.toml:6: "), at("d.toml:7: [oputut]: unknown block; did you mean [output]?"));
  EXPECT_LT(at("d.toml:7: "), at("command line: run.seed = -1: is out of range; allowed: >= 0"));
}

TEST(Overrides, AreTomlOrBareWords) {
  const Deck deck =
      read_deck("[schedule]\nname = \"paci\"\n", "d.toml",
                {"schedule.name=1f1b", "run.name=true", "run.resume=", "data.train= a/b.h5 ", "data.validation=\"q\"",
                 "train.learning_rate=3e-3", "run.time_limit=60", "schedule.partition=[1, 2]", "model.tied=true"});
  EXPECT_EQ(deck.schedule.name, "1f1b");
  EXPECT_EQ(deck.run.name, "true");
  EXPECT_EQ(deck.run.resume, "");
  EXPECT_EQ(deck.data.train, "a/b.h5");
  EXPECT_EQ(deck.data.validation, "q");
  EXPECT_EQ(deck.train.learning_rate, 3e-3);
  EXPECT_EQ(deck.run.time_limit, 60.0);
  EXPECT_THAT(deck.schedule.partition, ElementsAre(1, 2));
  EXPECT_TRUE(deck.model.tied);
}

TEST(Overrides, ErrorsNameTheCommandLine) {
  EXPECT_EQ(read_error("", {"run.steps"}), "command line: run.steps: an override has the form block.key=value");
  EXPECT_EQ(read_error("", {"sequence=3"}),
            "command line: sequence = 3: a block is missing: unknown key; did you mean train.sequence?");
  EXPECT_EQ(read_error("", {"train.sequnce=3"}), "command line: train.sequnce = 3: unknown key; did you mean train.sequence?");
  EXPECT_EQ(read_error("", {"trian.x=2"}), "command line: trian.x = 2: unknown block; did you mean [train]?");
  EXPECT_THAT(read_error("", {"train.sequence=abc"}), HasSubstr("must be an integer, not a word; allowed: >= 1"));
  EXPECT_THAT(read_error("", {"train.sequence="}), HasSubstr("must be an integer, not empty"));
  EXPECT_THAT(read_error("", {"train.sequence=\"3\""}), HasSubstr("must be an integer, not a string"));
  EXPECT_THAT(read_error("", {"schedule.name=pacy"}), HasSubstr("did you mean \"paci\"?"));
  EXPECT_EQ(read_error("", {"run.steps=3", "run.steps=4"}), "command line: run.steps = 4: repeated key; give it once");
}

}  // namespace
}  // namespace minipipe::core
