#include "core/deck/print.hpp"
#include "core/deck/sweep.hpp"
#include "unit_tests/core/deck/support.hpp"

namespace minipipe::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

SweepDeck read(const std::string& block, const std::string& other = "") {
  return read_sweep_deck(other + "\n[sweep]\n" + block, "d.toml");
}

std::string sweep_error(const std::string& block) { return read_error("[sweep]\n" + block); }

TEST(Sweep, FirstKeyOfTheFileIsTheSlowest) {
  // Names in an order that sorting would change.
  const SweepDeck deck = read("\"train.microbatches\" = [4, 8]\n\"parallel.stages\" = [1, 2, 4]\n");
  ASSERT_EQ(deck.sweep.cases(), 6);
  std::vector<std::pair<std::int64_t, int>> cases;
  for (int k = 0; k < 6; ++k) {
    const Deck one = case_of(deck, k);
    cases.emplace_back(one.train.microbatches, one.parallel.stages);
    EXPECT_EQ(one.case_number, k);
    EXPECT_EQ(one.output.directory, "runs/run/case_" + std::to_string(k));
  }
  EXPECT_THAT(cases, ElementsAre(Pair(4, 1), Pair(4, 2), Pair(4, 4), Pair(8, 1), Pair(8, 2), Pair(8, 4)));
  EXPECT_THAT(case_of(deck, 5).swept, ElementsAre(Pair("train.microbatches", "8"), Pair("parallel.stages", "4")));
}

TEST(Sweep, OrderOnOneLine) {
  const SweepDeck deck = read_sweep_deck("sweep = {\"train.microbatches\" = [4, 8], \"parallel.stages\" = [1, 2]}", "d.toml");
  EXPECT_EQ(case_of(deck, 1).train.microbatches, 4);
  EXPECT_EQ(case_of(deck, 1).parallel.stages, 2);
}

TEST(Sweep, ZippedKeysMoveTogetherAtThePlaceOfTheFirst) {
  const SweepDeck deck = read(
      "zip = [[\"schedule.name\", \"train.learning_rate\"]]\n\"schedule.name\" = [\"1f1b\", \"paci\"]\n\"run.seed\" = [1, 2]\n"
      "\"train.learning_rate\" = [1e-3, 2e-3]\n");
  ASSERT_EQ(deck.sweep.cases(), 4);
  EXPECT_THAT(case_of(deck, 1).swept,
              ElementsAre(Pair("schedule.name", "\"1f1b\""), Pair("train.learning_rate", "0.001"), Pair("run.seed", "2")));
  EXPECT_EQ(case_of(deck, 2).schedule.name, "paci");
  EXPECT_EQ(case_of(deck, 2).train.learning_rate, 2e-3);
  EXPECT_EQ(case_of(deck, 2).run.seed, 1);
}

TEST(Sweep, ListsAndFolderCanBeSwept) {
  const SweepDeck deck = read("\"schedule.partition\" = [[], [1, 7]]\n");
  EXPECT_TRUE(case_of(deck, 0).schedule.partition.empty());
  EXPECT_THAT(case_of(deck, 1).schedule.partition, ElementsAre(1, 7));
  EXPECT_EQ(case_of(read("\"output.directory\" = [\"a\", \"b\"]\n"), 1).output.directory, "b");
}

TEST(Sweep, NoTwoCasesShareAFolder) {
  const std::string folders = "\"output.directory\" = [\"a\", \"b\"]\n";
  EXPECT_THAT(
      sweep_error(folders + "\"run.seed\" = [1, 2]\n"),
      HasSubstr("d.toml:2: sweep.\"output.directory\": several cases would write to each folder, those of run.seed; zip"));
  EXPECT_THAT(sweep_error("\"output.directory\" = [\"a\", \"b\", \"a\"]\n"),
              HasSubstr("d.toml:2: sweep.\"output.directory\": \"a\" is named twice"));
  const SweepDeck zipped = read(folders + "\"run.seed\" = [1, 2]\nzip = [[\"run.seed\", \"output.directory\"]]\n");
  EXPECT_EQ(case_of(zipped, 1).output.directory, "b");
  EXPECT_EQ(case_of(zipped, 1).run.seed, 2);
}

TEST(Sweep, SweptValueBeatsTheBlocksAndOthersStay) {
  const SweepDeck deck = read("\"run.seed\" = [5]\n", "[run]\nseed = 3\nsteps = 7\n");
  EXPECT_EQ(deck.deck.run.seed, 3);
  EXPECT_EQ(case_of(deck, 0).run.seed, 5);
  EXPECT_EQ(case_of(deck, 0).run.steps, 7);
  EXPECT_THAT(print_deck(case_of(deck, 0)), HasSubstr("seed = 5  # d.toml:6, case 0"));
}

TEST(Sweep, UnknownCase) {
  const SweepDeck deck = read("\"run.seed\" = [1, 2]\n");
  EXPECT_THAT(error_of([&] { case_of(deck, 2); }), HasSubstr("--case 2: the deck's sweep has cases 0 to 1"));
  EXPECT_THAT(error_of([&] { case_of(SweepDeck{}, 0); }), HasSubstr("the deck has no block [sweep]"));
}

TEST(Sweep, SweptAndOverridden) {
  EXPECT_THAT(read_error("[sweep]\n\"run.seed\" = [1, 2]\n", {"run.seed=4"}),
              HasSubstr("run.seed = 4: is swept over at d.toml:2; leave the override out, or take the key out of [sweep]"));
  EXPECT_EQ(read_error("[sweep]\n\"run.seed\" = [1, 2]\n", {"run.steps=4"}), "");
  EXPECT_THAT(read_error("", {"sweep.x=4"}), HasSubstr("a sweep is written in the deck"));
}

TEST(Sweep, EveryErrorIsNamedWithItsRemedy) {
  EXPECT_THAT(sweep_error("\"train.microbatch\" = [1]\n"),
              HasSubstr("d.toml:2: sweep.\"train.microbatch\": unknown key; did you mean "
                        "train.microbatches?"));
  EXPECT_THAT(sweep_error("\"microbatches\" = [1]\n"), HasSubstr("did you mean train.microbatches?"));
  EXPECT_THAT(sweep_error("train.microbatches = [1]\n"), HasSubstr("put the key in quotes: \"train.key\" = [values]"));
  EXPECT_THAT(sweep_error("\"run.seed\" = 3\n"), HasSubstr("must be a list of the values to take, not 3"));
  EXPECT_THAT(sweep_error("\"run.seed\" = []\n"), HasSubstr("not an empty one"));
  EXPECT_THAT(sweep_error(""), HasSubstr("[sweep]: is empty"));
  const std::string values = sweep_error("\"train.microbatches\" = [1, 0, \"x\"]\n\"schedule.name\" = [\"pacy\"]\n");
  EXPECT_THAT(values, HasSubstr("sweep.\"train.microbatches\": 0 is out of range; allowed: 1 <= value <= 1000000"));
  EXPECT_THAT(values, HasSubstr("\"x\" must be an integer, not a string"));
  EXPECT_THAT(values, HasSubstr("did you mean \"paci\"?"));
  EXPECT_EQ(lines_in(values), 3U);
  const std::string million = "\"run.seed\" = [" + [] {
    std::string list;
    for (int i = 0; i < 1001; ++i) list += "1,";
    return list;
  }() + "]\n";
  EXPECT_THAT(sweep_error(million + "\"run.steps\" = " + million.substr(million.find('['))),
              HasSubstr("more than 1000000 cases"));
}

TEST(Sweep, ErrorsOfZip) {
  const std::string keys = "\"run.seed\" = [1, 2]\n\"run.steps\" = [8, 9, 10]\n";
  EXPECT_THAT(sweep_error(keys + "zip = [[\"run.seed\", \"run.steps\"]]\n"),
              HasSubstr("d.toml:4: sweep.zip: lists of unequal length: run.seed has 2, run.steps has 3"));
  EXPECT_THAT(sweep_error(keys + "zip = [[\"run.seed\", \"run.name\"]]\n"), HasSubstr("\"run.name\" is not a key of [sweep]"));
  EXPECT_THAT(sweep_error(keys + "zip = [[\"run.seed\", \"run.seed\"]]\n"), HasSubstr("\"run.seed\" is named twice"));
  EXPECT_THAT(sweep_error(keys + "zip = [\"run.seed\", \"run.steps\"]\n"), HasSubstr("must be a list of groups of swept keys"));
}

TEST(Sweep, ListNamesRanksFolderAndValues) {
  const SweepDeck deck = read("\"parallel.stages\" = [0, 4]\n\"schedule.name\" = [\"1f1b\", \"zb-v\"]\n");
  EXPECT_EQ(list_cases(deck),
            "# case\tranks\tfolder\tvalues\n"
            "0\t0\truns/run/case_0\tparallel.stages=0 schedule.name=\"1f1b\"\n"
            "1\t0\truns/run/case_1\tparallel.stages=0 schedule.name=\"zb-v\"\n"
            "2\t4\truns/run/case_2\tparallel.stages=4 schedule.name=\"1f1b\"\n"
            "3\t2\truns/run/case_3\tparallel.stages=4 schedule.name=\"zb-v\"\n");
}

}  // namespace
}  // namespace minipipe::core
