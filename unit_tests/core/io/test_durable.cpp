#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "core/io/durable.hpp"
#include "core/io/output_folder.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/io/scratch.hpp"

namespace minipipe::core {
namespace {

using testing::error_text;
using ::testing::HasSubstr;
using testing::read_all;
using testing::write_all;

class Durable : public testing::Scratch {};
class OutputFolderTest : public testing::Scratch {};

TEST_F(Durable, TemporaryNameIsHiddenAndInTheSameFolder) {
  EXPECT_EQ(temporary_name("a/b/step.h5"), std::filesystem::path("a/b/.step.h5.tmp"));
  EXPECT_EQ(temporary_name("step.h5"), std::filesystem::path(".step.h5.tmp"));
}

TEST_F(Durable, TextReplacesTheOldFileAndLeavesNothingElse) {
  write_text(folder_ / "a.txt", "old and longer");
  write_text(folder_ / "a.txt", "new");
  EXPECT_EQ(read_all(folder_ / "a.txt"), "new");
  EXPECT_FALSE(std::filesystem::exists(temporary_name(folder_ / "a.txt")));
}

TEST_F(Durable, MissingFolderNamesThePathAndTheReason) {
  const std::string text = error_text<RunError>([&] { write_text(folder_ / "gone" / "a.txt", "x"); });
  EXPECT_THAT(text, HasSubstr("gone"));
  EXPECT_THAT(text, HasSubstr("No such file or directory"));
}

TEST_F(Durable, FullDeviceIsTold) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  write_all(folder_ / "from", "bytes");
  EXPECT_THAT(error_text<RunError>([&] { copy_bytes(folder_ / "from", "/dev/full"); }), HasSubstr("No space left on device"));
}

TEST_F(Durable, CopyKeepsEveryByte) {
  std::string bytes(3 << 20, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 % 251);
  write_all(folder_ / "from", bytes);
  copy_bytes(folder_ / "from", folder_ / "to");
  EXPECT_EQ(read_all(folder_ / "to"), bytes);
}

TEST_F(OutputFolderTest, NewFolderHasCheckpoints) {
  const auto lock = take_output_folder(folder_ / "a" / "b");
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "a" / "b" / "checkpoints"));
  EXPECT_FALSE(move_earlier_results(folder_ / "a" / "b").moved_to().has_value());
  EXPECT_EQ(OutputFolder{folder_ / "a" / "b"}.trace(), folder_ / "a" / "b" / "trace.h5");
}

TEST_F(OutputFolderTest, EarlierResultsAreMovedAside) {
  write_all(folder_ / "trace.h5", "one");
  write_all(folder_ / "notes.txt", "mine");
  std::filesystem::create_directory(folder_ / "checkpoints");
  write_all(folder_ / "checkpoints" / "step_00000001.h5", "c");
  const auto lock = take_output_folder(folder_);
  EXPECT_EQ(read_all(folder_ / "trace.h5"), "one") << "to take the folder moves nothing";
  ASSERT_EQ(move_earlier_results(folder_).moved_to(), folder_ / "previous.1");
  EXPECT_EQ(read_all(folder_ / "previous.1" / "trace.h5"), "one");
  EXPECT_EQ(read_all(folder_ / "previous.1" / "checkpoints" / "step_00000001.h5"), "c");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "trace.h5"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "checkpoints"));
  EXPECT_EQ(read_all(folder_ / "notes.txt"), "mine");
  write_all(folder_ / "summary.json", "two");
  EXPECT_EQ(move_earlier_results(folder_).moved_to(), folder_ / "previous.2");
  EXPECT_FALSE(move_earlier_results(folder_).moved_to().has_value());  // nothing there now
  EXPECT_TRUE(std::filesystem::exists(folder_ / ".lock")) << "the lock does not go with the results";
}

TEST_F(OutputFolderTest, MovedResultsGoBackWhereTheStartFails) {
  write_all(folder_ / "trace.h5", "one");
  std::filesystem::create_directory(folder_ / "checkpoints");
  write_all(folder_ / "checkpoints" / "step_00000001.h5", "c");
  std::filesystem::create_directory(folder_ / "previous.1");
  MovedResults moved = move_earlier_results(folder_);
  ASSERT_EQ(moved.moved_to(), folder_ / "previous.2");
  EXPECT_EQ(moved.put_back(), "");
  EXPECT_EQ(read_all(folder_ / "trace.h5"), "one");
  EXPECT_EQ(read_all(folder_ / "checkpoints" / "step_00000001.h5"), "c");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "previous.2"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "previous.1"));
  EXPECT_FALSE(moved.moved_to().has_value());
}

TEST_F(OutputFolderTest, ResultsThatCannotGoBackAreNamed) {
  write_all(folder_ / "trace.h5", "one");
  MovedResults moved = move_earlier_results(folder_);
  std::filesystem::create_directories(folder_ / "trace.h5" / "in the way");
  EXPECT_THAT(moved.put_back(), HasSubstr("are in " + (folder_ / "previous.1" / "trace.h5").string()));
  EXPECT_EQ(read_all(folder_ / "previous.1" / "trace.h5"), "one");
}

TEST_F(OutputFolderTest, AMoveIsDoneAsAWholeOrNotAtAll) {
  std::filesystem::create_directory(folder_ / "checkpoints");
  write_all(folder_ / "summary.json", "one");
  // No folder can be moved into itself.
  const std::string text = error_text<InputError>([&] { MovedResults(folder_, {folder_ / "summary.json", folder_}); });
  EXPECT_THAT(text, HasSubstr("output.directory = "));
  EXPECT_EQ(read_all(folder_ / "summary.json"), "one");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "previous.1"));
}

TEST_F(OutputFolderTest, ARunThatGoesBackMovesWhatComesAfter) {
  std::filesystem::create_directory(folder_ / "checkpoints");
  for (const char* file : {"trace.h5", "summary.json", "checkpoints/step_00000002.h5", "checkpoints/step_00000004.h5"}) {
    write_all(folder_ / file, file);
  }
  EXPECT_FALSE(move_results_beyond(folder_, 4).moved_to().has_value());
  MovedResults moved = move_results_beyond(folder_, 2);
  ASSERT_EQ(moved.moved_to(), folder_ / "previous.1");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "checkpoints" / "step_00000002.h5"));
  for (const char* file : {"summary.json", "checkpoints/step_00000004.h5"}) {
    EXPECT_EQ(read_all(folder_ / "previous.1" / file), file);
    EXPECT_FALSE(std::filesystem::exists(folder_ / file)) << file;
  }
  for (const char* file : {"trace.h5", "previous.1/trace.h5"}) EXPECT_EQ(read_all(folder_ / file), "trace.h5");
  EXPECT_EQ(moved.put_back(), "");
  EXPECT_EQ(read_all(folder_ / "checkpoints" / "step_00000004.h5"), "checkpoints/step_00000004.h5");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "previous.1"));
}

TEST_F(OutputFolderTest, OnlyOneRunHasIt) {
  auto first = take_output_folder(folder_);
  EXPECT_EQ(first->warning(), "");
  const std::string text = error_text<InputError>([&] { take_output_folder(folder_); });
  EXPECT_THAT(text, HasSubstr("output.directory = \"" + folder_.string() + "\": another run is writing there (host "));
  EXPECT_THAT(text, HasSubstr("pid " + std::to_string(::getpid())));
  EXPECT_THAT(text, HasSubstr("output.directory=PATH"));
  first.reset();
  EXPECT_EQ(read_all(folder_ / ".lock"), "");
  EXPECT_NO_THROW(take_output_folder(folder_));
}

TEST_F(OutputFolderTest, WithoutLocksInTheFileSystemARunIsWarnedAndGoesOn) {
  const auto none = [](int, int) {
    errno = ENOSYS;
    return -1;
  };
  const FolderLock first(folder_, none), second(folder_, none);
  EXPECT_THAT(second.warning(), HasSubstr("cannot lock files (Function not implemented)"));
  EXPECT_THAT(second.warning(), HasSubstr(folder_.string()));
}

TEST_F(OutputFolderTest, ALockFileLeftBehindBarsNobody) {
  write_all(folder_ / ".lock", "host gone, pid 1\n");
  const auto lock = take_output_folder(folder_);
  EXPECT_THAT(read_all(folder_ / ".lock"), ::testing::EndsWith("pid " + std::to_string(::getpid()) + "\n"));
}

// /proc is not writable for anybody.
TEST_F(OutputFolderTest, CheckpointsThatCannotBeWrittenAreTold) {
  std::filesystem::create_directory_symlink("/proc/self", folder_ / "checkpoints");
  const std::string text = error_text<InputError>([&] { take_output_folder(folder_); });
  EXPECT_THAT(text, HasSubstr("output.directory"));
  EXPECT_THAT(text, HasSubstr((folder_ / "checkpoints").string()));
}

TEST_F(OutputFolderTest, AFileInTheWayIsBadInput) {
  write_all(folder_ / "file", "");
  const std::string text = error_text<InputError>([&] { take_output_folder(folder_ / "file" / "out"); });
  EXPECT_THAT(text, HasSubstr("output.directory"));
  EXPECT_THAT(text, HasSubstr((folder_ / "file").string()));
  EXPECT_THAT(error_text<InputError>([&] { take_output_folder(folder_ / "file"); }), HasSubstr("output.directory"));
}

}  // namespace
}  // namespace minipipe::core
