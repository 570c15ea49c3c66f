#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "core/model/partition.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig model(int layers, int width = 128, int vocab = 256) { return {"gpt2", layers, width, 4, vocab, 64, false, 0.0}; }

std::vector<int> blocks(const std::vector<StageLayers>& stages) {
  std::vector<int> counts;
  for (const StageLayers& stage : stages) counts.push_back(stage.blocks);
  return counts;
}

std::string error_of(const ModelConfig& m, int stages, const std::vector<int>& partition) {
  try {
    partition_model(m, 64, stages, partition);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Partition, OneStageHasEverything) {
  EXPECT_EQ(partition_model(model(3), 64, 1), (std::vector<StageLayers>{{true, 0, 3, true}}));
}

TEST(Partition, IsContiguousAndWithoutEmptyStages) {
  for (int layers = 1; layers <= 12; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const auto split = partition_model(model(layers), 64, stages);
      ASSERT_EQ(split.size(), static_cast<std::size_t>(stages));
      int next = 0;
      for (int s = 0; s < stages; ++s) {
        EXPECT_EQ(split[s].first_block, next);
        EXPECT_GE(split[s].blocks, 1);
        EXPECT_EQ(split[s].embedding, s == 0);
        EXPECT_EQ(split[s].head, s == stages - 1);
        next += split[s].blocks;
      }
      EXPECT_EQ(next, layers);
    }
  }
}

TEST(Partition, IsEvenWhenTheHeadIsSmall) {
  EXPECT_THAT(blocks(partition_model(model(8), 64, 4)), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(blocks(partition_model(model(8), 64, 8)), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
}

TEST(Partition, TakesBlocksFromTheStageWithALargeHead) {
  // 12 widths of tokens cost a little less than one block, 48 a little less than four.
  EXPECT_NEAR(layer_costs(model(8, 128, 12 * 128), 64).head, 1.0, 0.05);
  EXPECT_THAT(blocks(partition_model(model(7, 128, 12 * 128), 64, 2)), ElementsAre(4, 3));
  EXPECT_THAT(blocks(partition_model(model(9, 128, 48 * 128), 64, 3)), ElementsAre(4, 4, 1));
}

TEST(Partition, SlowestStageIsAsFastAsItCanBe) {
  const ModelConfig m = model(7, 64, 1500);
  const LayerCosts costs = layer_costs(m, 64);
  const auto slowest = [&](int a, int b) { return std::max({costs.embedding + a, 1.0 * b, 7 - a - b + costs.head}); };
  double best = 1e300;
  for (int a = 1; a <= 5; ++a) {
    for (int b = 1; a + b <= 6; ++b) best = std::min(best, slowest(a, b));
  }
  const auto found = blocks(partition_model(m, 64, 3));
  EXPECT_DOUBLE_EQ(slowest(found[0], found[1]), best);
}

// Every way to cut: the lowest maximum, then the lowest sum of squares, then fewest blocks on late stages.
std::vector<int> tried_out(const LayerCosts& costs, int stages) {
  const int layers = static_cast<int>(costs.blocks.size());
  const auto cost = [&](int stage, int first, int last) {
    double sum = (stage == 0 ? costs.embedding : 0) + (stage == stages - 1 ? costs.head : 0);
    for (int b = first; b < last; ++b) sum += costs.blocks[b];
    return sum;
  };
  std::vector<int> best;
  double lowest[2] = {1e300, 1e300};
  std::vector<int> blocks(stages);
  const std::function<void(int, int, double, double)> place = [&](int stage, int last, double slowest, double squares) {
    for (int mine = 1; mine <= last - stage; ++mine) {
      if (stage == 0 && mine != last) continue;
      const double own = cost(stage, last - mine, last), most = std::max(slowest, own), sum = squares + own * own;
      blocks[stage] = mine;
      if (stage > 0) {
        place(stage - 1, last - mine, most, sum);
      } else if (most < lowest[0] * (1 - 1e-10) || (most < lowest[0] * (1 + 1e-10) && sum < lowest[1] * (1 - 1e-10))) {
        lowest[0] = most;
        lowest[1] = sum;
        best = blocks;
      }
    }
  };
  place(stages - 1, layers, 0, 0);
  return best;
}

TEST(Partition, IsTheBestOfAll) {
  for (const int vocab : {64, 1024, 8192}) {
    for (int layers = 1; layers <= 9; ++layers) {
      ModelConfig hybrid = model(layers, 128, vocab);
      hybrid.family = "hybrid";
      hybrid.pattern = std::string("M-*#M-M*-").substr(0, layers);
      for (const ModelConfig& one : {model(layers, 128, vocab), hybrid}) {
        for (int stages = 1; stages <= layers; ++stages) {
          EXPECT_EQ(blocks(partition_model(one, 64, stages)), tried_out(layer_costs(one, 64), stages))
              << one.family << ", " << layers << " layers, vocab " << vocab;
        }
      }
    }
  }
}

// In a time that grows with the square of them, this would take minutes.
TEST(Partition, ManyLayers) {
  const auto split = blocks(partition_model(model(300000), 64, 3));
  EXPECT_THAT(split, ElementsAre(100000, 100000, 100000));
}

TEST(Partition, FollowsTheDeck) {
  EXPECT_EQ(partition_model(model(4), 64, 3, {0, 4, 0}),
            (std::vector<StageLayers>{{true, 0, 0, false}, {false, 0, 4, false}, {false, 4, 0, true}}));
  EXPECT_THAT(blocks(partition_model(model(4), 64, 2, {1, 3})), ElementsAre(1, 3));
}

TEST(Partition, SaysWhatIsWrong) {
  EXPECT_THAT(error_of(model(2), 3, {}), HasSubstr("model.layers = 2"));
  EXPECT_THAT(error_of(model(4), 3, {2, 2}), HasSubstr("schedule.partition = [2, 2]: has 2 entries for 3 stages"));
  EXPECT_THAT(error_of(model(4), 2, {2, 3}), HasSubstr("sums to 5; must sum to model.layers = 4"));
  EXPECT_THAT(error_of(model(4), 3, {2, 0, 2}), HasSubstr("stage 1 would be empty"));
  EXPECT_THAT(error_of(model(4), 2, {5, -1}), HasSubstr("negative"));
}

}  // namespace
}  // namespace minipipe::core
