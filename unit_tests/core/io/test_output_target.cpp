#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "core/io/durable.hpp"
#include "core/io/output_folder.hpp"
#include "core/io/output_option.hpp"
#include "core/io/output_target.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/io/scratch.hpp"

namespace minipipe::core {
namespace {

using testing::error_text;
using ::testing::HasSubstr;
using testing::read_all;
using testing::write_all;
namespace fs = std::filesystem;

// A pipe with a name, whose reading end is open, so that writers do not wait.
class Pipe {
 public:
  explicit Pipe(const fs::path& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(fd_, 0);
  }
  ~Pipe() { ::close(fd_); }
  std::string take() {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(fd_, bytes.data(), bytes.size());
    return {bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0};
  }

 private:
  int fd_ = -1;
};

class OutputTarget : public testing::Scratch {};

TEST_F(OutputTarget, APipeIsWrittenToAndStaysOne) {
  const fs::path path = folder_ / "pipe";
  Pipe pipe(path);
  EXPECT_TRUE(is_special(path));
  write_text(path, "text");
  EXPECT_EQ(pipe.take(), "text");
  {
    TemporaryFile temporary(path);
    write_all(temporary.path(), "bytes");
    EXPECT_NE(temporary.path().parent_path(), folder_);
    temporary.publish();
    EXPECT_FALSE(fs::exists(temporary.path()));
  }
  EXPECT_EQ(pipe.take(), "bytes");
  write_all(folder_ / "file", "published");
  publish(folder_ / "file", path);
  EXPECT_EQ(pipe.take(), "published");
  EXPECT_TRUE(fs::is_fifo(path));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "something stayed beside the pipe";
}

TEST_F(OutputTarget, ALinkStaysAndItsTargetIsReplaced) {
  fs::create_directory(folder_ / "there");
  fs::create_symlink("there/file", folder_ / "relative");
  fs::create_symlink(folder_ / "relative", folder_ / "link");
  for (const char* text : {"first", "second"}) {  // without a target, and with one
    write_text(folder_ / "link", text);
    EXPECT_EQ(read_all(folder_ / "there" / "file"), text);
    EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
    EXPECT_TRUE(fs::is_symlink(folder_ / "relative"));
  }
  Pipe pipe(folder_ / "pipe");
  fs::create_symlink("pipe", folder_ / "to_pipe");
  write_text(folder_ / "to_pipe", "text");
  EXPECT_EQ(pipe.take(), "text");
  EXPECT_TRUE(fs::is_symlink(folder_ / "to_pipe"));
}

TEST_F(OutputTarget, AStreamOfThisProcessGoesOnWhereItIs) {
  const fs::path file = folder_ / "printed";
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::write(fd, "before ", 7), 7);
  const fs::path name = "/dev/fd/" + std::to_string(fd);
  EXPECT_TRUE(is_special(name)) << "although a regular file is behind it";
  write_text(name, "text");
  ASSERT_EQ(::write(fd, " after", 6), 6);
  ::close(fd);
  EXPECT_EQ(read_all(file), "before text after");
  EXPECT_THAT(error_text<RunError>([&] { write_text(name, "text"); }), HasSubstr(name.string()));
}

TEST_F(OutputTarget, AWrongPathIsToldBeforeTheWork) {
  check_output("--out", folder_ / "new");
  write_all(folder_ / "file", "");
  check_output("--out", folder_ / "file");
  for (const fs::path& wrong : {folder_, folder_ / "gone" / "file", folder_ / "file" / "file", folder_ / ""}) {
    const std::string text = error_text<InputError>([&] { check_output("--out", wrong); });
    EXPECT_THAT(text, HasSubstr("--out " + wrong.string() + ": cannot be written"));
    EXPECT_THAT(text, HasSubstr("give a file name in an existing, writable folder"));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "the check made something";
}

TEST_F(OutputTarget, AFailedWriteNamesTheOption) {
  const testing::FileSizeLimit limit(4);
  const std::string text = error_text<RunError>([&] { write_output("--out", folder_ / "file", "more than fits"); });
  EXPECT_THAT(text, HasSubstr("--out " + (folder_ / "file").string() + ": not written"));
  EXPECT_THAT(text, HasSubstr("File too large"));
  EXPECT_FALSE(fs::exists(folder_ / "file"));
}

TEST_F(OutputTarget, ARunMovesNoPipeAwayAndWantsARealTrace) {
  const Pipe pipe(folder_ / "summary.json");
  const auto lock = take_output_folder(folder_);
  EXPECT_FALSE(move_earlier_results(folder_).moved_to().has_value());
  write_all(folder_ / "timeline.json", "one");
  EXPECT_TRUE(move_earlier_results(folder_).moved_to().has_value());
  EXPECT_TRUE(fs::is_fifo(folder_ / "summary.json"));
  fs::create_directory(folder_ / "other");
  const Pipe trace(folder_ / "other" / "trace.h5");
  EXPECT_THAT(error_text<InputError>([&] { take_output_folder(folder_ / "other"); }),
              HasSubstr("trace.h5 is a device or a pipe"));
}

}  // namespace
}  // namespace minipipe::core
