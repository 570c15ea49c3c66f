#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/train/replica_options.hpp"
#include "core/train/trace_attributes.hpp"
#include "core/train/trainer.hpp"
#include "unit_tests/core/train/decks.hpp"

namespace minipipe::core {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Deck deck_of(int replicas) {
  return tests::small_deck({"parallel.data=" + std::to_string(replicas), "parallel.mode=sdp", "sdp.unit=neuron",
                            "sdp.neuron_groups=64", "sdp.coverage=0.5"});
}

TEST(MasksText, OfManyReplicasHasTheEnds) {
  const Deck deck = deck_of(100);
  const auto lines = [&](MaskRows rows) {
    const std::string text = masks_text(deck, 1, rows);
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(lines(MaskRows::all), 1 + 100 + 1 + 1);
  EXPECT_EQ(lines(MaskRows::ends), 1 + 16 + 1 + 1 + 1);
  EXPECT_EQ(lines(MaskRows::none), 1);
  EXPECT_THAT(masks_text(deck, 1), HasSubstr("replica 99"));
  EXPECT_THAT(masks_text(deck, 1), Not(HasSubstr("replica 50")));
  EXPECT_EQ(masks_text(tests::small_deck(), 1), "");
}

// HDF5 refuses an attribute of more than 64 KiB, and a run with it.
TEST(MasksText, OfTheTraceFitsInAnAttribute) {
  const auto told = [](int replicas) {
    const Deck deck = deck_of(replicas);
    return trace_attributes(deck, place_of_run(deck, 0, replicas), {"", ""}, {}).at("masks");
  };
  EXPECT_GT(masks_text(deck_of(60), 1).size(), 65536U);
  EXPECT_LT(told(60).size(), 65536U);
  EXPECT_THAT(told(60), HasSubstr("masks of stage 0: 60 replicas, 512 units, spectral gap "));
  EXPECT_EQ(told(4), masks_text(deck_of(4), 1));
}

}  // namespace
}  // namespace minipipe::core
