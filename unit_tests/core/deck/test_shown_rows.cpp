#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/deck/shown_rows.hpp"

namespace minipipe::core {
namespace {

using ::testing::ElementsAre;

TEST(ShownRows, AllOfFewAndTheEndsAndExtremesOfMany) {
  EXPECT_EQ(shown_rows(64, false, {3, 60}).size(), 64U);
  EXPECT_EQ(shown_rows(1000, true, {3, 60}).size(), 1000U);
  EXPECT_THAT(shown_rows(1000, false, {500, 3, 500, 20}),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 20, 500, 992, 993, 994, 995, 996, 997, 998, 999));
  EXPECT_TRUE(shown_rows(0, false).empty());
}

TEST(ShownRows, WhatIsLeftOutIsTold) {
  EXPECT_EQ(rows_left_out(64, 64, ""), "");
  EXPECT_EQ(rows_left_out(1000, 18, ", and those with most"),
            "  18 of 1000 rows: the first and last, and those with most; minipipe check --all-ranks shows all\n");
}

TEST(ShownRows, ExtremesAreTheFirstOfEquals) {
  EXPECT_THAT(extremes(std::vector<int>{2, 1, 3, 1, 3}), ElementsAre(1, 2));
  EXPECT_TRUE(extremes(std::vector<int>()).empty());
}

}  // namespace
}  // namespace minipipe::core
