#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "core/comm/error_text.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(ErrorText, IsTheErrorsOwn) {
  EXPECT_EQ(error_text(RunError("rank 1 is gone")), "rank 1 is gone");
  EXPECT_EQ(error_text(std::runtime_error("Kokkos has two\nlines")), "Kokkos has two\nlines");
}

TEST(ErrorText, SaysWhichArrayDidNotFit) {
  const std::runtime_error of_kokkos(
      "Kokkos failed to allocate memory for label \"minipipe::model::gradients\".  Allocation using MemorySpace named \"Host\" "
      "failed with the following error:  Allocation of size 3.006 G failed, likely due to insufficient memory.  (The "
      "allocation "
      "mechanism was standard malloc().)\n\nTraceback functionality not available\n");
  const std::string text = error_text(of_kokkos);
  EXPECT_THAT(text, StartsWith("out of memory: 3.006 GiB for minipipe::model::gradients cannot be had; use a smaller model"));
  EXPECT_THAT(text, HasSubstr("fsdp"));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
}

TEST(ErrorText, SaysWhatToChangeWhereNoArrayIsKnown) {
  EXPECT_THAT(error_text(std::bad_alloc()), StartsWith("out of memory; use a smaller model"));
  const std::runtime_error twice(
      "Kokkos encountered an allocation failure, then another allocation failure while trying to create the error message.\n");
  EXPECT_EQ(error_text(twice), error_text(std::bad_alloc()));
}

}  // namespace
}  // namespace minipipe::core
