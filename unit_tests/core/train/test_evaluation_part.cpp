#include <gtest/gtest.h>

#include "core/train/evaluation_part.hpp"

namespace minipipe::core {
namespace {

TEST(EvaluationPart, IsAboutASecondOfWorkAndNeverMoreThanIsLeft) {
  EXPECT_EQ(evaluation_part(0, 1000, 0, 2), 8);
  EXPECT_EQ(evaluation_part(0, 5, 0, 2), 5);
  EXPECT_EQ(evaluation_part(0, 1000, 0, 16), 64) << "a pipe of many stages is filled several times";
  EXPECT_EQ(evaluation_part(100, 1000, 2, 2), 50);
  EXPECT_EQ(evaluation_part(100, 30, 2, 2), 30);
  EXPECT_EQ(evaluation_part(8, 1000, 100, 2), 8) << "slow ones, too, in parts that fill the pipe";
  EXPECT_EQ(evaluation_part(8, 1000, 0, 2), 1000) << "too fast to be timed";
}

}  // namespace
}  // namespace minipipe::core
