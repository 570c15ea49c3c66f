#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/train/drains.hpp"
#include "unit_tests/core/train/decks.hpp"

namespace minipipe::core {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> drains_of(const Deck& deck) {
  const Drains drains(deck);
  std::vector<std::int64_t> result;
  for (std::int64_t update = 0; update < deck.run.steps;) result.push_back(update = drains.next(update));
  return result;
}

TEST(Drains, AreWhereTheDeckEvaluatesSavesAndSwitches) {
  const Deck deck = tests::small_deck(
      {"schedule.name=paci", "checkpoint.interval=5", "output.evaluation_interval=4", "schedule.synchronous_updates=3"});
  EXPECT_THAT(drains_of(deck), ElementsAre(3, 4, 5, 8, 10, 12));
}

TEST(Drains, ARunThatOnlySavesAtTheEndDrainsOnce) {
  EXPECT_THAT(drains_of(tests::small_deck({"schedule.name=paci", "checkpoint.interval=0"})), ElementsAre(12));
}

TEST(Drains, FlushSchedulesHaveShortSegmentsAndNoSwitch) {
  const Deck deck =
      tests::small_deck({"schedule.name=1f1b", "checkpoint.interval=0", "run.steps=60", "schedule.synchronous_updates=3"});
  EXPECT_THAT(drains_of(deck), ElementsAre(25, 50, 60));
}

TEST(Drains, AreWhereHoldersAreEqual) {
  const Deck deck = tests::small_deck({"schedule.name=1f1b", "checkpoint.interval=0", "run.steps=60", "parallel.data=2",
                                       "parallel.mode=sdp", "sdp.sync=parameter", "sdp.period=4"});
  EXPECT_THAT(drains_of(deck), ElementsAre(28, 56, 60));
}

// A run resumed at any drain meets the same drains as the run that never stopped.
TEST(Drains, DoNotDependOnWhereTheRunBegan) {
  const Deck deck = tests::small_deck({"schedule.name=paci", "checkpoint.interval=3", "output.evaluation_interval=5"});
  const Drains drains(deck);
  const auto all = drains_of(deck);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) EXPECT_EQ(drains.next(all[i]), all[i + 1]);
}

TEST(Drains, EvaluationsAndCheckpointsIncludeTheLastUpdate) {
  const Drains drains(tests::small_deck({"checkpoint.interval=5", "output.evaluation_interval=5"}));
  EXPECT_TRUE(drains.evaluates(5));
  EXPECT_FALSE(drains.evaluates(6));
  EXPECT_TRUE(drains.evaluates(12));
  EXPECT_TRUE(drains.writes_checkpoint(10));
  EXPECT_FALSE(drains.writes_checkpoint(11));
  EXPECT_TRUE(drains.writes_checkpoint(12));
  EXPECT_FALSE(Drains(tests::small_deck({"output.evaluation_interval=0"})).evaluates(12)) << "0 = never";
}

}  // namespace
}  // namespace minipipe::core
