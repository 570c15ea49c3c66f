#include <gtest/gtest.h>

#include "core/profile/trimmed_mean.hpp"

namespace minipipe::core {
namespace {

TEST(TrimmedMean, LeavesATenthOutAtEachEnd) {
  EXPECT_EQ(trimmed_mean({}), 0);
  EXPECT_EQ(trimmed_mean({7}), 7);
  EXPECT_EQ(trimmed_mean({1, 2, 6}), 3) << "of fewer than ten values none is left out";
  EXPECT_EQ(trimmed_mean({1000, 2, 2, 2, 2, 4, 4, 4, 4, -1000}), 3);
}

TEST(TrimmedMean, WeighsTheModes) {
  std::vector<double> values(75, 1.0);
  values.resize(100, 2.0);
  // Without ten of each: 65 and 15 of 80.
  EXPECT_DOUBLE_EQ(trimmed_mean(values), (65 * 1.0 + 15 * 2.0) / 80);
}

}  // namespace
}  // namespace minipipe::core
