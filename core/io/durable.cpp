#include "core/io/durable.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "core/io/output_target.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  throw RunError(path.string() + ": cannot " + what + ": " + std::strerror(error));
}

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags, const char* what)
      : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (fd_ < 0) fail(path, what, errno);
  }
  // Takes the descriptor over.
  Descriptor(const fs::path& path, int fd) : path_(path), fd_(fd) {
    if (fd_ < 0) fail(path, "open", errno);
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  std::size_t read(char* bytes, std::size_t count) {
    for (;;) {
      const ssize_t got = ::read(fd_, bytes, count);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno != EINTR) fail(path_, "read", errno);
    }
  }
  void write(const char* bytes, std::size_t count) {
    while (count > 0) {
      const ssize_t put = ::write(fd_, bytes, count);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) fail(path_, "write", errno);
      bytes += put;
      count -= static_cast<std::size_t>(put);
    }
  }
  void sync() {
    // EINVAL: a file system that has no such operation, where there is nothing to wait for.
    if (::fsync(fd_) != 0 && errno != EINVAL) fail(path_, "flush", errno);
  }
  void reserve(std::uint64_t bytes) {
    const char* what = "make room for the file";
    while (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) != 0) {
      if (errno == EINTR) continue;
      if (errno != EOPNOTSUPP && errno != ENOSYS) fail(path_, what, errno);
      struct statvfs space {};
      if (::fstatvfs(fd_, &space) != 0) return;  // then the writes themselves have to tell
      if (static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize < bytes) fail(path_, what, ENOSPC);
      return;
    }
  }
  void close() {
    if (::close(std::exchange(fd_, -1)) != 0) fail(path_, "close", errno);
  }

 private:
  fs::path path_;
  int fd_;
};

Descriptor open_to_replace(const fs::path& file) {
  if (is_special(file)) return {file, open_special(file)};
  return {file, O_WRONLY | O_CREAT | O_TRUNC, "create"};
}

// Beside the file, or where temporary files are if that is no place for one (/dev).
fs::path name_until_published(const fs::path& final_name) {
  if (!is_special(final_name)) return temporary_name(final_name);
  const std::string name = "minipipe." + std::to_string(::getpid()) + "." + final_name.filename().string() + ".tmp";
  return fs::temp_directory_path() / name;
}

}  // namespace

fs::path temporary_name(const fs::path& final_name) {
  std::string name(".");
  name += final_name.filename().string();
  name += ".tmp";
  return final_name.parent_path() / name;
}

void sync_file(const fs::path& file) {
  Descriptor descriptor(file, O_RDONLY, "open");
  descriptor.sync();
  descriptor.close();
}

void sync_folder(const fs::path& folder) {
  Descriptor descriptor(folder.empty() ? fs::path(".") : folder, O_RDONLY | O_DIRECTORY, "open the folder");
  descriptor.sync();
  descriptor.close();
}

void publish(const fs::path& temporary, const fs::path& final_name) {
  if (is_special(final_name)) {
    copy_bytes(temporary, final_name);
    fs::remove(temporary);
    return;
  }
  sync_file(temporary);
  if (::rename(temporary.c_str(), final_name.c_str()) != 0) fail(final_name, "rename the temporary file to this name", errno);
  sync_folder(final_name.parent_path());
}

void write_text(const fs::path& file, const std::string& text) {
  if (is_special(file)) {
    Descriptor descriptor(file, open_special(file));
    descriptor.write(text.data(), text.size());
    descriptor.close();
    return;
  }
  TemporaryFile temporary(file);
  Descriptor descriptor(temporary.path(), O_WRONLY | O_CREAT | O_TRUNC, "create");
  descriptor.write(text.data(), text.size());
  descriptor.close();
  temporary.publish();
}

void copy_bytes(const fs::path& from, const fs::path& to) {
  Descriptor source(from, O_RDONLY, "open");
  Descriptor target = open_to_replace(to);
  std::vector<char> buffer(std::size_t{1} << 20);
  while (const std::size_t count = source.read(buffer.data(), buffer.size())) target.write(buffer.data(), count);
  target.close();
}

void reserve(const fs::path& file, std::uint64_t bytes) {
  Descriptor descriptor(file, O_RDWR | O_CREAT, "create");
  if (bytes > 0) descriptor.reserve(bytes);
  descriptor.close();
}

TemporaryFile::TemporaryFile(const fs::path& final_name)
    : final_name_(followed(final_name)), path_(name_until_published(final_name_)) {}

TemporaryFile::~TemporaryFile() {
  // After a publish there is no file of this name, and removing nothing is not an error.
  std::error_code ignored;
  fs::remove(path_, ignored);
}

void TemporaryFile::publish() { core::publish(path_, final_name_); }

}  // namespace minipipe::core
