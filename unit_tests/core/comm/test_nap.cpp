#include <gtest/gtest.h>

#include "core/comm/nap.hpp"

namespace minipipe::core {
namespace {

TEST(Nap, spins_then_yields_then_sleeps_until_reset) {
  Nap nap;
  int counts[3] = {0, 0, 0};
  Nap::Step last = Nap::Step::spin;
  for (int i = 0; i < 210; ++i) {
    const Nap::Step step = nap.idle();
    EXPECT_GE(static_cast<int>(step), static_cast<int>(last));
    last = step;
    ++counts[static_cast<int>(step)];
  }
  EXPECT_EQ(counts[0], 49);
  EXPECT_EQ(counts[1], 150);
  EXPECT_EQ(counts[2], 11);
  nap.reset();
  EXPECT_EQ(nap.idle(), Nap::Step::spin);
}

}  // namespace
}  // namespace minipipe::core
