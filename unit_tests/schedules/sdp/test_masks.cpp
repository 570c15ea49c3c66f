#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "schedules/sdp/generator.hpp"
#include "unit_tests/schedules/sdp/support.hpp"

namespace minipipe::schedules {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Check>
void for_all_options(const Check& check) {
  for (int workers = 1; workers <= 9; ++workers) {
    for (int units = 1; units <= 24; ++units) {
      for (const double coverage : {0.05, 0.1, 0.25, 0.3, 0.375, 0.5, 0.6, 0.69, 0.75, 0.875, 0.95, 1.0}) {
        for (const MaskGenerator generator : {MaskGenerator::cyclic, MaskGenerator::random}) {
          check(MaskOptions{workers, units, coverage, generator, 7});
        }
      }
    }
  }
}

// The smallest coverage that the text of a refusal names.
double remedy(const std::string& text) {
  const std::string mark = "the smallest coverage that works here is ";
  const auto at = text.find(mark);
  return at == std::string::npos ? -1.0 : std::strtod(text.c_str() + at + mark.size(), nullptr);
}

TEST(Masks, AreBalancedConnectedAndOfTheRightSizeOrRefused) {
  int made = 0;
  int refused = 0;
  for_all_options([&](const MaskOptions& o) {
    const int held = units_per_worker(o);
    EXPECT_EQ(held, std::max(1, static_cast<int>(std::floor(o.coverage * o.units + 0.5)))) << shown(o);
    Masks masks;
    try {
      masks = make_masks(o);
    } catch (const InputError&) {
      ++refused;
      return;
    }
    ++made;
    ASSERT_EQ(masks.workers, o.workers) << shown(o);
    ASSERT_EQ(masks.units(), o.units) << shown(o);
    int pairs = 0;
    for (const auto& holders : masks.holders) {
      ASSERT_FALSE(holders.empty()) << shown(o);
      ASSERT_TRUE(std::is_sorted(holders.begin(), holders.end())) << shown(o);
      ASSERT_EQ(std::adjacent_find(holders.begin(), holders.end()), holders.end()) << shown(o);
      ASSERT_GE(holders.front(), 0);
      ASSERT_LT(holders.back(), o.workers);
      pairs += static_cast<int>(holders.size());
    }
    EXPECT_EQ(pairs, o.workers * held) << shown(o);
    for (int worker = 0; worker < o.workers; ++worker) {
      EXPECT_EQ(static_cast<int>(masks.units_of(worker).size()), held) << shown(o) << ", worker " << worker;
    }
    EXPECT_LE(spread(holder_counts(masks)), 1) << shown(o) << "\n" << to_text(masks);
    EXPECT_TRUE(reachable(masks)) << shown(o) << "\n" << to_text(masks);
    EXPECT_TRUE(connected(masks)) << shown(o);
    EXPECT_EQ(make_masks(o), masks) << shown(o);
  });
  EXPECT_GT(made, 1000);
  EXPECT_GT(refused, 1000);
}

// A graph of workers and units is connected only with workers + units - 1 pairs at least: no coverage is refused that any
// assignment could serve, and the remedy in the text is the smallest number of units that can.
TEST(Masks, RefuseOnlyWhatCannotWorkAndNameTheSmallestCoverage) {
  for_all_options([&](const MaskOptions& o) {
    const std::string text = refusal(o, make_masks);
    const int held = units_per_worker(o);
    const bool possible = o.workers == 1 ? held == o.units : o.workers * held >= o.workers + o.units - 1;
    EXPECT_EQ(text.empty(), possible) << shown(o) << ": " << text;
    if (text.empty()) return;
    EXPECT_THAT(text, HasSubstr("sdp.coverage = "));
    MaskOptions better = o;
    better.coverage = remedy(text);
    ASSERT_GT(better.coverage, o.coverage) << text;
    EXPECT_EQ(refusal(better, make_masks), "") << shown(better);
    const int fewer = units_per_worker(better) - 1;
    EXPECT_TRUE(o.workers == 1 || o.workers * fewer < o.workers + o.units - 1) << shown(o) << ": " << text;
  });
}

TEST(Masks, RefusalsSayWhatIsWrong) {
  EXPECT_EQ(refusal(MaskOptions{.workers = 2, .units = 8, .coverage = 0.25}, make_masks),
            "sdp.coverage = 0.25: 2 replicas that each hold 2 of 8 units leave 4 held by nobody; the smallest coverage that "
            "works here is 0.625 (5 of 8 units each)");
  EXPECT_EQ(refusal(MaskOptions{.workers = 4, .units = 8, .coverage = 0.25}, make_masks),
            "sdp.coverage = 0.25: 4 replicas that each hold 2 of 8 units share too few of them: parts of the model would never "
            "meet; the smallest coverage that works here is 0.375 (3 of 8 units each)");
  EXPECT_THAT(refusal(MaskOptions{.workers = 1, .units = 3, .coverage = 0.5}, make_masks),
              HasSubstr("1 replica that holds 2 of 3 units leaves 1 held by nobody; the smallest coverage that works here is 1 "
                        "(3 of 3 units each)"));
  for (const double coverage : {0.0, -0.5, 1.001, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_THAT(refusal(MaskOptions{.workers = 2, .units = 2, .coverage = coverage}, make_masks),
                HasSubstr("is not in (0, 1]; it is the share"));
  }
  EXPECT_THAT(refusal(MaskOptions{.workers = 0}, make_masks), HasSubstr("at least one replica and one unit, not 0 and 1"));
  EXPECT_THAT(refusal(MaskOptions{.units = 0}, make_masks), HasSubstr("at least one replica and one unit, not 1 and 0"));
}

TEST(Masks, CyclicWorkersHoldConsecutiveUnitsRoundTheCircle) {
  const Masks masks = make_masks({.workers = 3, .units = 7, .coverage = 0.6});  // 4 units from 0, 2 and 4 on
  EXPECT_THAT(masks.units_of(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(masks.units_of(1), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(masks.units_of(2), ElementsAre(0, 4, 5, 6));
  EXPECT_TRUE(masks.holds(2, 0));
  EXPECT_FALSE(masks.holds(1, 6));
}

TEST(Masks, FullCoverage) {
  for (const MaskGenerator generator : {MaskGenerator::cyclic, MaskGenerator::random}) {
    EXPECT_EQ(make_masks({.workers = 4, .units = 6, .coverage = 1.0, .generator = generator}), full_masks(4, 6));
  }
  EXPECT_THAT(full_masks(3, 2).holders, ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1, 2)));
}

TEST(Masks, SeedsGiveOtherRandomMasksAndDoNotTouchCyclicOnes) {
  MaskOptions o{.workers = 4, .units = 12, .coverage = 0.5, .generator = MaskGenerator::random};
  std::vector<Masks> seen;
  for (o.seed = 0; o.seed < 20; ++o.seed) {
    const Masks masks = make_masks(o);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), masks), 0) << "seed " << o.seed;
    seen.push_back(masks);
  }
  o.generator = MaskGenerator::cyclic;
  const Masks first = make_masks(o);
  o.seed = 5;
  EXPECT_EQ(make_masks(o), first);
}

// Over many seeds every worker holds every unit about equally often: neither labels nor the cyclic start show through.
TEST(Masks, RandomOnesPreferNoPair) {
  MaskOptions o{.workers = 3, .units = 8, .coverage = 0.5, .generator = MaskGenerator::random};
  int count[3][8] = {};
  int neighbours = 0;
  constexpr int seeds = 2000;
  for (int seed = 0; seed < seeds; ++seed) {
    o.seed = static_cast<std::uint64_t>(seed);
    const Masks masks = make_masks(o);
    for (int worker = 0; worker < 3; ++worker) {
      for (const int unit : masks.units_of(worker)) ++count[worker][unit];
    }
    if (masks.holds(0, 0) && masks.holds(0, 1)) ++neighbours;
  }
  for (const auto& row : count) {
    for (const int n : row) EXPECT_NEAR(n, seeds / 2, 6 * std::sqrt(seeds / 4.0));
  }
  // Four of eight units: two given ones together in 4*3/(8*7) of the draws.
  EXPECT_NEAR(neighbours, seeds * 12.0 / 56.0, 6 * std::sqrt(seeds * 0.17));
}

TEST(Masks, RandomOnesAreTheSameEverywhere) {
  EXPECT_EQ(to_text(make_masks({.workers = 4, .units = 8, .coverage = 0.5, .generator = MaskGenerator::random, .seed = 1})),
            "replica 0  . . # # # . # .\n"
            "replica 1  . # # . # # . .\n"
            "replica 2  # # . # . . . #\n"
            "replica 3  # . . . . # # #\n"
            "holders    2 2 2 2 2 2 2 2\n");
}

TEST(Masks, GeneratorHasThePublishedSequence) {
  Generator zero(0);
  EXPECT_EQ(zero.next(), 0xe220a8397b1dcdafULL);
  Generator other(1234567);
  EXPECT_EQ(other.next(), 6457827717110365317ULL);
  EXPECT_EQ(other.next(), 3203168211198807973ULL);
}

TEST(Masks, ConnectedAsReachable) {
  const Masks apart{4, {{0, 1}, {2, 3}, {0, 1}}};
  EXPECT_FALSE(connected(apart));
  EXPECT_FALSE(reachable(apart));
  EXPECT_TRUE(connected({4, {{0, 1}, {2, 3}, {1, 2}}}));
  EXPECT_FALSE(connected({3, {{0, 1}}})) << "worker 2 holds nothing";
  EXPECT_TRUE(connected({1, {{0}, {0}}}));
}

TEST(Masks, MaskingError) {
  EXPECT_EQ(masking_error(full_masks(5, 3)), 0.0);
  EXPECT_EQ(masking_error(make_masks({.workers = 4, .units = 8, .coverage = 0.5})), 0.0);
  // Holders 1, 2, 3 of mean 2: deviations -1/2, 0, 1/2.
  EXPECT_DOUBLE_EQ(masking_error({3, {{0}, {0, 1}, {0, 1, 2}}}), std::sqrt(0.5 / 3.0));
}

TEST(Masks, Text) {
  EXPECT_EQ(to_text({2, {{0}, {0, 1}, {1}}}),
            "replica 0  # # .\n"
            "replica 1  . # #\n"
            "holders    1 2 1\n");
  const std::string wide = to_text(full_masks(12, 2));
  EXPECT_THAT(wide, HasSubstr("replica 9    #  #\nreplica 10   #  #\n"));
  EXPECT_THAT(wide, HasSubstr("holders     12 12\n"));
}

}  // namespace
}  // namespace minipipe::schedules
