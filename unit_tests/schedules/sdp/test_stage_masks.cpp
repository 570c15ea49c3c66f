#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "schedules/sdp/stage_masks.hpp"
#include "unit_tests/schedules/sdp/support.hpp"

namespace minipipe::schedules {
namespace {

using ::testing::HasSubstr;

Masks block_of(const Masks& masks, int block, int units) {
  const auto begin = masks.holders.begin() + static_cast<std::ptrdiff_t>(block) * units;
  return {masks.workers, {begin, begin + units}};
}

TEST(StageMasks, BlocksAndSublayersAreCoveredOverTheStage) {
  EXPECT_EQ(make_stage_masks({.workers = 3, .blocks = 7, .coverage = 0.6}),
            make_masks({.workers = 3, .units = 7, .coverage = 0.6}));
  EXPECT_EQ(make_stage_masks({.workers = 3, .first_block = 5, .blocks = 7, .units_per_block = 2, .coverage = 0.6}),
            make_masks({.workers = 3, .units = 14, .coverage = 0.6}));
  EXPECT_EQ(make_stage_masks({.workers = 3, .blocks = 0}), (Masks{3, {}}));
}

TEST(StageMasks, NeuronsAreCoveredInEveryBlock) {
  for (int workers = 1; workers <= 9; ++workers) {
    for (const double coverage : {0.5, 0.625, 1.0}) {
      for (const MaskGenerator generator : {MaskGenerator::cyclic, MaskGenerator::random}) {
        const StageMaskOptions o{workers, 2, 5, 8, true, coverage, generator, 1};
        if (workers * units_per_worker({workers, 8, coverage}) < workers + 7 || (workers == 1 && coverage < 1.0)) continue;
        const Masks masks = make_stage_masks(o);
        ASSERT_EQ(masks.units(), 40);
        for (int block = 0; block < 5; ++block) {
          const Masks part = block_of(masks, block, 8);
          for (int worker = 0; worker < workers; ++worker) {
            EXPECT_EQ(static_cast<int>(part.units_of(worker).size()), units_per_worker({workers, 8, coverage}));
          }
          EXPECT_LE(spread(holder_counts(part)), 1) << to_text(part);
          EXPECT_TRUE(reachable(part)) << to_text(part);
          for (const auto& holders : part.holders) EXPECT_TRUE(std::is_sorted(holders.begin(), holders.end()));
        }
      }
    }
  }
}

TEST(StageMasks, NeuronsOfABlockDoNotDependOnTheSplitIntoStages) {
  for (const MaskGenerator generator : {MaskGenerator::cyclic, MaskGenerator::random}) {
    StageMaskOptions o{5, 0, 6, 8, true, 0.5, generator, 3};
    const Masks whole = make_stage_masks(o);
    o.first_block = 4;
    o.blocks = 2;
    const Masks last = make_stage_masks(o);
    EXPECT_EQ(last, (Masks{5, {whole.holders.begin() + 32, whole.holders.end()}}));
  }
}

TEST(StageMasks, CyclicBlocksPairDifferentWorkers) {
  const auto pairs = [](const Masks& masks) {
    std::set<std::pair<int, int>> result;
    for (const auto& holders : masks.holders) {
      for (const int v : holders) {
        for (const int w : holders) {
          if (v < w) result.insert({v, w});
        }
      }
    }
    return result;
  };
  const Masks masks = make_stage_masks({.workers = 8, .blocks = 2, .units_per_block = 8, .each_block = true, .coverage = 0.25});
  EXPECT_EQ(pairs(block_of(masks, 0, 8)).size(), 8U);
  EXPECT_EQ(pairs(masks).size(), 16U) << "neighbours at distance 1 in one block, 3 in the other";
  EXPECT_GT(spectral_gap(masks), 2.0 * spectral_gap(block_of(masks, 0, 8)));
}

TEST(StageMasks, RandomStagesAndBlocksAreIndependentDraws) {
  StageMaskOptions o{4, 0, 6, 2, false, 0.5, MaskGenerator::random, 1};
  const Masks first = make_stage_masks(o);
  o.first_block = 6;
  EXPECT_NE(make_stage_masks(o), first);
  const Masks neurons = make_stage_masks({4, 0, 2, 8, true, 0.5, MaskGenerator::random, 1});
  EXPECT_NE(block_of(neurons, 0, 8), block_of(neurons, 1, 8));
}

TEST(StageMasks, Refusals) {
  const auto text = [](const StageMaskOptions& o) { return refusal(o, make_stage_masks); };
  EXPECT_THAT(text({.workers = 2, .blocks = 3, .units_per_block = 2, .coverage = 0.25}), HasSubstr("each hold 2 of 6 units"));
  EXPECT_THAT(text({.workers = 4, .blocks = 3, .units_per_block = 8, .each_block = true, .coverage = 0.25}),
              HasSubstr("each hold 2 of 8 units share too few"));
}

}  // namespace
}  // namespace minipipe::schedules
