#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "core/tune/deck_profile.hpp"
#include "core/tune/plan_header.hpp"
#include "core/tune/profile_file.hpp"
#include "schedules/error.hpp"
#include "schedules/plan/csv.hpp"

namespace minipipe::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const char* const kGood = R"({"layers": "AB", "microbatches": 2, "devices": 2, "communication_ms": 0.5,
 "forward_ms": {"A": 1, "B": 2, "L": 3}, "backward_ms": {"A": 2, "B": 3, "L": 4}, "weight_ms": {"A": 0, "B": 1, "L": 0},
 "cases": [{"name": "a", "partition": [1, 1], "placement": [[0], [1]], "schedule": "1f1b", "makespan_ticks": 7}]})";

std::string changed(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, const std::string& reason) {
  try {
    parse_profile(text, "p.json");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("profile p.json: " + reason));
  }
}

TEST(ProfileFile, ReadsCostsAndCases) {
  const ProfileFile file = parse_profile(kGood, "dir/p.json");
  EXPECT_EQ(file.profile.size(), 2);
  EXPECT_EQ(file.profile.layers[1].backward_input, 3);
  EXPECT_EQ(file.profile.head.forward, 3);
  EXPECT_EQ(file.profile.head.units, 0);
  EXPECT_EQ(file.profile.embedding.forward, 0);
  EXPECT_EQ(file.profile.link, 0.5);
  EXPECT_EQ(file.profile.name, "p.json");
  ASSERT_EQ(file.cases.size(), 1u);
  EXPECT_THAT(file.cases[0].placement.rank_of_stage, ElementsAre(0, 1));
  EXPECT_EQ(*file.cases[0].makespan_ticks, 7);
}

// The symbols of published profiles.
TEST(ProfileFile, EverySymbolHasItsCosts) {
  const auto profile =
      parse_profile(R"({"layers": "M-*#T-M", "forward_ms": {"E": 1, "M": 2, "-": 3, "*": 4, "#": 5, "T": 6, "L": 7},
 "backward_ms": {"E": 0, "M": 1, "-": 1, "*": 1, "#": 1, "T": 1, "L": 1},
 "weight_ms": {"E": 0, "M": 1, "-": 1, "*": 1, "#": 1, "T": 1, "L": 1}})",
                    "p.json")
          .profile;
  ASSERT_EQ(profile.size(), 7);
  const double forward[] = {2, 3, 4, 5, 6, 3, 2};
  for (int l = 0; l < 7; ++l) EXPECT_EQ(profile.layers[l].forward, forward[l]) << profile.pattern[l];
  EXPECT_EQ(profile.embedding.forward, 1);
  EXPECT_EQ(profile.head.forward, 7);
}

TEST(ProfileFile, SymbolsWithoutTimesAreNamedInEveryTable) {
  for (const char* key : {"activation_units", "activation_bytes", "parameter_bytes", "gradient_bytes", "attention_share"}) {
    expect_refused(changed("\"microbatches\"", "\"" + std::string(key) + "\": {\"A\": 1, \"a\": 1}, \"microbatches\""),
                   std::string(key) + ".a is of a layer that has no times");
  }
}

TEST(ProfileFile, StatedTicksMayBeLargeAndUnitsAreThoseOfTheKey) {
  const auto file = parse_profile(changed("\"makespan_ticks\": 7", "\"compute_ticks\": [5000000000, 2]"), "p.json");
  EXPECT_THAT(file.cases[0].compute_ticks, ElementsAre(5e9, 2));
  expect_refused(changed("\"microbatches\"", "\"parameter_bytes\": {\"A\": \"x\"}, \"microbatches\""),
                 "parameter_bytes.A is \"x\", not a number; give one, or 0 for none");
}

TEST(ProfileFile, BadValuesAreNamedByPath) {
  expect_refused("{", "not JSON");
  expect_refused("[]", "is not a JSON object");
  expect_refused(changed("\"B\": 2", "\"B\": -2"), "forward_ms.B is -2; it must be 0 or more");
  expect_refused(changed("\"B\": 2", "\"B\": \"x\""), "forward_ms.B is \"x\", not a number");
  expect_refused(changed(", \"L\": 4", ""), "backward_ms.L is missing");
  expect_refused(changed("\"weight_ms\"", "\"weights\""), "weights is not a key of a profile");
  expect_refused(R"({"layers": "A", "forward_ms": {"A": 1}, "backward_ms": {"A": 1}})", "weight_ms is missing");
  expect_refused(changed("\"layers\": \"AB\", ", ""), "layers is missing");
  expect_refused(changed("\"AB\"", "\"AXB\""), "layers has 'X' at position 1");
  expect_refused(changed("\"AB\"", "\"ALB\""), "layers has 'L' at position 1");
  expect_refused(changed("\"A\": 1", "\"AA\": 1"), "forward_ms.AA is not the cost of a layer");
  expect_refused(changed("\"devices\": 2", "\"devices\": 0"), "devices is 0");
  for (const std::string count : {"1000000000", "1e18", "18446744073709551615", "2.0"}) {
    expect_refused(changed("\"devices\": 2", "\"devices\": " + count), "devices is ");
    expect_refused(changed("\"microbatches\": 2", "\"microbatches\": " + count), "microbatches is ");
  }
  expect_refused(changed("\"devices\": 2", "\"devices\": 1000001"),
                 "devices is 1000001; it must be a whole number, 1 to 1000000, in digits only");
  expect_refused(changed("\"devices\": 2", "\"devices\": 2, \"microbatches\": 3"), "microbatches is a repeated key");
  expect_refused(changed("\"A\": 1", "\"A\": 1, \"A\": 1"), "A is a repeated key");
  expect_refused(changed("\"AB\"", "\"A\u00e4B\""), "layers has '\u00e4' at position 1");
  expect_refused(changed("[1, 1]", "[1, 2]"), "cases[0].partition adds up to 3, not to the 2 layers");
  expect_refused(changed("[[0], [1]]", "[[0], [0]]"), "cases[0].placement[1] names stage 0 a second time");
  expect_refused(changed("[[0], [1]]", "[[0], []]"), "cases[0].placement leaves out stage 1");
  expect_refused(changed("\"1f1b\"", "\"magic\""), "cases[0].schedule is \"magic\"");
  EXPECT_THROW(read_json_profile("none.json"), InputError);
}

// Eight layers on two stages, four microbatches.
Deck deck_of_plan(const std::string& path) {
  Deck deck;
  deck.schedule.name = "plan";
  deck.schedule.plan = path;
  deck.schedule.partition = {4, 4};
  deck.model.layers = 8;
  deck.train.microbatches = 4;
  return deck;
}

TEST(PlanHeader, RoundTripAndTheCellsAreStillRead) {
  const auto profile = parse_profile(kGood, "p.json").profile;
  schedules::TunedPlan plan{"", {1, 1}, schedules::one_stage_per_rank(2), {}, 12};
  plan.order.ranks = {{{schedules::Kind::forward, 0, 0}, {schedules::Kind::backward, 0, 0}},
                      {{schedules::Kind::forward, 1, 0}, {schedules::Kind::backward, 1, 0}}};
  std::ostringstream out;
  write_plan_file(out, header_of(plan, profile, 1, ""), plan.order);
  std::istringstream in(out.str());
  const PlanHeader header = read_plan_header(in, "plan.csv");
  EXPECT_EQ(header.layers, 2);
  EXPECT_EQ(header.devices, 2);
  EXPECT_EQ(header.machine, "any");
  EXPECT_EQ(header.profile, fingerprint(profile));
  EXPECT_THAT(header.partition, ElementsAre(1, 1));
  std::istringstream again(out.str());
  EXPECT_EQ(schedules::read_csv(again, "plan.csv").ranks, plan.order.ranks);
  std::istringstream bad("# layers: many\n");
  EXPECT_THROW(read_plan_header(bad, "plan.csv"), InputError);
}

TEST(PlanHeader, LongMakespansKeepAllDigits) {
  std::ostringstream stream;
  PlanHeader header;
  header.makespan = 1266900;
  write_plan_file(stream, header, {});
  EXPECT_THAT(stream.str(), HasSubstr("# makespan: 1266900\n"));
}

TEST(PlanHeader, FingerprintsTellProfilesApart) {
  auto profile = parse_profile(kGood, "p.json").profile;
  const std::string before = fingerprint(profile);
  profile.layers[1].backward_weight += 1e-9;
  EXPECT_NE(fingerprint(profile), before);
  profile.layers[0].gradient_bytes += 1;
  const std::string after = fingerprint(profile);
  profile.layers[0].gradient_bytes += 1;
  EXPECT_NE(fingerprint(profile), after);
}

TEST(PlanHeader, APlanForSomethingElseIsRefused) {
  const std::string path = testing::TempDir() + "plan_header_test.csv";
  PlanHeader header{"m", 8, 2, 4, "0", "any", {4, 4}, 1};
  const auto write = [&] {
    std::ofstream stream(path);
    write_plan_file(stream, header, {{{}, {}}});
  };
  Deck deck = deck_of_plan(path);
  write();
  EXPECT_NO_THROW(check_plan_header(deck, 2));
  EXPECT_NO_THROW(check_plan_header(deck, 1));
  EXPECT_THROW(check_plan_header(deck, 4), InputError);
  deck.model.layers = 9;
  EXPECT_THROW(check_plan_header(deck, 2), InputError);
  deck.model.layers = 8;
  deck.train.microbatches = 8;
  EXPECT_THROW(check_plan_header(deck, 2), InputError);
  deck.train.microbatches = 4;
  deck.schedule.partition = {5, 3};
  EXPECT_THROW(check_plan_header(deck, 2), InputError);
  deck.schedule.partition = {4, 4};
  header.machine = "another-machine";
  write();
  EXPECT_THROW(check_plan_header(deck, 2), InputError);
}

TEST(PlanHeader, EachLineIsComparedOnItsOwn) {
  const std::string path = testing::TempDir() + "plan_header_lines_test.csv";
  Deck deck = deck_of_plan(path);
  const auto refusal = [&](const std::string& text) -> std::string {
    std::ofstream(path) << text << "0F0\n";
    try {
      check_plan_header(deck, 2);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  for (const std::string mark : {"", "\xef\xbb\xbf"}) {
    for (const std::string end : {"\n", "\r\n"}) {
      EXPECT_THAT(refusal(mark + "# devices: 3" + end), HasSubstr("made for 3 devices"));
      EXPECT_THAT(refusal(mark + "# layers: 7" + end), HasSubstr("made for 7 layers"));
      EXPECT_THAT(refusal(mark + "# microbatches: 5" + end), HasSubstr("made for 5 microbatches"));
      EXPECT_THAT(refusal(mark + "# machine: elsewhere" + end), HasSubstr("made for machine elsewhere, "));
      EXPECT_THAT(refusal(mark + "# partition: [3,5]" + end), HasSubstr("made for the partition [3,5]"));
      EXPECT_THAT(refusal(mark + "# devices: 0" + end), HasSubstr("does not say its devices"));
      EXPECT_THAT(refusal(mark + "# devices: 2x" + end), HasSubstr("does not say its devices"));
      EXPECT_EQ(refusal(mark + "# devices: 2" + end + "# machine: any" + end), "");
      EXPECT_EQ(refusal(mark + "# layers: 8" + end + "# microbatches: 4" + end + "# partition: [4,4]" + end), "");
    }
  }
}

TEST(DeckProfile, WithoutEmulationADeckSaysNothingOfCosts) {
  try {
    deck_profile(Deck(), 2);
    ADD_FAILURE() << "accepted";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--profile"));
    EXPECT_THAT(error.what(), HasSubstr("minipipe profile DECK"));
    EXPECT_THAT(error.what(), HasSubstr("emulate.enabled"));
  }
}

TEST(DeckProfile, EmulatedStagesShareTheirTimeAmongTheirLayers) {
  Deck deck;
  deck.model.layers = 4;
  deck.emulate.enabled = true;
  deck.emulate.forward_ms = 4;
  deck.emulate.backward_ms = 8;
  deck.emulate.stage_factors = {1, 3};
  const auto profile = deck_profile(deck, 2);
  EXPECT_EQ(profile.layers[0].forward, 2);
  EXPECT_EQ(profile.layers[3].backward_weight, 6);
  const auto overrides = plan_overrides(deck, profile, {3, 1}, "p.csv");
  EXPECT_THAT(overrides, ElementsAre("schedule.name=plan", "schedule.plan=p.csv", "schedule.partition=[3,1]",
                                     "parallel.stages=2", "emulate.stage_factors=[2.5,1.5]"));
}

TEST(DeckProfile, TimesOfSingleStagesAreSharedAndGivenBack) {
  Deck deck;
  deck.model.layers = 4;
  deck.emulate.enabled = true;
  deck.emulate.stage_forward_ms = {4, 1};
  deck.emulate.stage_input_ms = {6, 2};
  deck.emulate.stage_weight_ms = {3, 1};
  deck.emulate.stage_update_ms = {1, 1};
  deck.schedule.partition = {1, 3};
  const auto profile = deck_profile(deck, 2, {9, 2, 1, 1});
  EXPECT_DOUBLE_EQ(profile.layers[0].forward, 4);
  EXPECT_DOUBLE_EQ(profile.layers[1].forward, 0.5);
  EXPECT_DOUBLE_EQ(profile.layers[3].backward_input, 0.5);
  EXPECT_DOUBLE_EQ(profile.layers[2].backward_weight, 0.25);
  EXPECT_THAT(plan_overrides(deck, profile, {2, 1, 1}, "p.csv"),
              ElementsAre("schedule.name=plan", "schedule.plan=p.csv", "schedule.partition=[2,1,1]", "parallel.stages=3",
                          "emulate.stage_forward_ms=[4.5,0.25,0.25]", "emulate.stage_input_ms=[7,0.5,0.5]",
                          "emulate.stage_weight_ms=[3.5,0.25,0.25]", "emulate.stage_factors=[]", "emulate.stage_update_ms=[]"));
}

TEST(DeckProfile, LayersOfAHybridShareByTheCostOfTheirKind) {
  Deck deck;
  deck.model.family = "hybrid";
  deck.model.pattern = "-*-*";
  deck.model.layers = 4;
  deck.emulate.enabled = true;
  const auto profile = deck_profile(deck, 2, {3, 1, 3, 2});
  EXPECT_EQ(profile.pattern, "-*-*");
  EXPECT_DOUBLE_EQ(profile.layers[0].forward, 0.75 * deck.emulate.forward_ms);
  EXPECT_DOUBLE_EQ(profile.layers[1].forward, 0.25 * deck.emulate.forward_ms);
  EXPECT_DOUBLE_EQ(profile.layers[3].backward_input, 0.2 * deck.emulate.backward_ms);
}

}  // namespace
}  // namespace minipipe::core
