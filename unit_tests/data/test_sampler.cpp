#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "data/sampler.hpp"
#include "unit_tests/data/temporary.hpp"

namespace minipipe::data {
namespace {

using testing::TemporaryFolder;
using testing::write_raw;

// A file whose id at position i is i, so that a batch shows where it was cut.
class SamplerTest : public ::testing::Test {
 protected:
  TokenFile counting_file(std::int64_t count) const {
    std::vector<std::uint16_t> ids(count);
    std::iota(ids.begin(), ids.end(), std::uint16_t{0});
    write_raw(folder_ / "t.bin", ids);
    return open_token_file(folder_ / "t.bin", 65536, 1, "data.train");
  }
  struct Batch {
    std::vector<std::int32_t> tokens, targets;
    bool operator==(const Batch&) const = default;
  };
  static Batch draw(const Sampler& sampler, std::int64_t microbatch, std::int64_t size, std::int64_t sequence) {
    Batch batch{std::vector<std::int32_t>(size * sequence, -1), std::vector<std::int32_t>(size * sequence, -1)};
    sampler.batch(microbatch, batch.tokens.data(), batch.targets.data());
    return batch;
  }
  TemporaryFolder folder_;
};

TEST_F(SamplerTest, TargetsAreTheTokensShiftedByOne) {
  const TokenFile file = counting_file(1000);
  const Sampler sampler(file, 3, 4, 16);
  for (std::int64_t microbatch = 0; microbatch < 50; ++microbatch) {
    const Batch batch = draw(sampler, microbatch, 4, 16);
    for (std::int64_t row = 0; row < 4; ++row) {
      const std::int32_t start = batch.tokens[row * 16];
      EXPECT_EQ(start, sampler.window_start(microbatch * 4 + row));
      for (std::int32_t i = 0; i < 16; ++i) {
        ASSERT_EQ(batch.tokens[row * 16 + i], start + i);
        ASSERT_EQ(batch.targets[row * 16 + i], start + i + 1);
      }
    }
  }
}

TEST_F(SamplerTest, EachEpochTakesEachOfItsWindowsOnce) {
  for (const std::int64_t count : {18, 33, 34, 100, 1000, 1024, 1025, 4097}) {
    SCOPED_TRACE(count);
    const TokenFile file = counting_file(count);
    const std::int64_t sequence = 16;
    const Sampler sampler(file, 5, 1, sequence);
    const std::int64_t windows = sampler.windows();
    ASSERT_GE(windows, 1);
    ASSERT_GE(windows, (count - 1) / sequence - 1);
    for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
      std::vector<std::int64_t> starts;
      for (std::int64_t p = 0; p < windows; ++p) starts.push_back(sampler.window_start(epoch * windows + p));
      std::sort(starts.begin(), starts.end());
      ASSERT_GE(starts.front(), 0);
      ASSERT_LT(starts.front(), sequence);
      ASSERT_LE(starts.back() + sequence, count - 1);
      for (std::int64_t p = 1; p < windows; ++p) ASSERT_EQ(starts[p], starts[p - 1] + sequence);
    }
  }
}

TEST_F(SamplerTest, DependsOnSeedAndMicrobatchAlone) {
  const TokenFile file = counting_file(5000);
  const Sampler forward(file, 7, 3, 10);
  const Sampler backward(file, 7, 3, 10);
  std::vector<Batch> first, second(40);
  for (int m = 0; m < 40; ++m) first.push_back(draw(forward, m, 3, 10));
  for (int m = 39; m >= 0; --m) second[m] = draw(backward, m, 3, 10);
  EXPECT_EQ(first, second);
  // Cutting the same draws into other microbatch sizes gives the same rows.
  const Sampler single(file, 7, 1, 10);
  for (int d = 0; d < 120; ++d) {
    const Batch row = draw(single, d, 1, 10);
    EXPECT_TRUE(std::equal(row.tokens.begin(), row.tokens.end(), first[d / 3].tokens.begin() + (d % 3) * 10)) << d;
  }
}

TEST_F(SamplerTest, SeedsAndEpochsDifferInOrderAndOffset) {
  const TokenFile file = counting_file(5000);
  const Sampler a(file, 1, 1, 10), b(file, 2, 1, 10);
  const std::int64_t windows = a.windows();
  int same_seed = 0, same_epoch = 0, ascending = 0;
  std::set<std::int64_t> offsets;
  for (std::int64_t d = 0; d < windows; ++d) {
    same_seed += a.window_start(d) / 10 == b.window_start(d) / 10;
    same_epoch += a.window_start(d) / 10 == a.window_start(d + windows) / 10;
    ascending += d > 0 && a.window_start(d) > a.window_start(d - 1);
  }
  // Two random permutations agree in 1 place on average (Poisson); half of the steps ascend (sigma about 6.5).
  EXPECT_LT(same_seed, 12);
  EXPECT_LT(same_epoch, 12);
  EXPECT_NEAR(ascending, static_cast<double>(windows) / 2, 40);
  for (std::int64_t epoch = 0; epoch < 200; ++epoch) offsets.insert(a.window_start(epoch * windows) % 10);
  EXPECT_EQ(offsets.size(), 10u);
}

TEST_F(SamplerTest, SmallPermutationsAreAllReached) {
  const TokenFile file = counting_file(40);  // 3 windows of 10 in random order
  const Sampler sampler(file, 11, 1, 10);
  ASSERT_EQ(sampler.windows(), 3);
  std::map<std::vector<std::int64_t>, int> seen;
  for (std::int64_t epoch = 0; epoch < 600; ++epoch) {
    std::vector<std::int64_t> order;
    for (int p = 0; p < 3; ++p) order.push_back(sampler.window_start(epoch * 3 + p) / 10);
    ++seen[order];
  }
  ASSERT_EQ(seen.size(), 6u);
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, 100, 50);  // sigma 9
}

TEST_F(SamplerTest, ExactlyOneWindow) {
  const TokenFile file = counting_file(17);
  const Sampler random(file, 1, 2, 16);
  const Sampler fixed = Sampler::sequential(file, 2, 16);
  for (const Sampler* sampler : {&random, &fixed}) {
    EXPECT_EQ(sampler->windows(), 1);
    EXPECT_EQ(sampler->microbatches(), 1);
    for (std::int64_t d = 0; d < 10; ++d) EXPECT_EQ(sampler->window_start(d), 0);
    const Batch batch = draw(*sampler, 4, 2, 16);
    EXPECT_EQ(batch.targets.back(), 16);
  }
}

TEST_F(SamplerTest, NoWindowIsAnError) {
  const TokenFile file = counting_file(16);
  testing::expect_error<InputError>([&] { Sampler(file, 1, 2, 16); },
                                    {"t.bin", "16 tokens", "train.sequence + 1 = 17", "lower"});
  testing::expect_error<InputError>([&] { Sampler::sequential(file, 2, 16); }, {"t.bin", "16 tokens"});
  EXPECT_THROW(Sampler(file, 1, 0, 8), InputError);
}

TEST_F(SamplerTest, SequenceOfOne) {
  const TokenFile file = counting_file(9);
  const Sampler sampler(file, 1, 1, 1);
  ASSERT_EQ(sampler.windows(), 8);
  std::set<std::int64_t> starts;
  for (std::int64_t d = 0; d < 8; ++d) starts.insert(sampler.window_start(d));
  EXPECT_EQ(starts, (std::set<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(SamplerTest, SequentialOrderIsFixed) {
  const TokenFile file = counting_file(101);
  const Sampler sampler = Sampler::sequential(file, 3, 10);
  EXPECT_EQ(sampler.windows(), 10);
  EXPECT_EQ(sampler.microbatches(), 3);
  for (std::int64_t d = 0; d < 25; ++d) EXPECT_EQ(sampler.window_start(d), (d % 10) * 10);
}

}  // namespace
}  // namespace minipipe::data
