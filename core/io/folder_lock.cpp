#include "core/io/folder_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;

constexpr int tries = 20;
constexpr std::chrono::milliseconds between_tries{50};

int open_lock(const fs::path& file) {
  int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  // Made by another user of a shared folder: it can be locked, if not written to.
  if (fd < 0 && errno == EACCES) fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  return fd;
}

// 0, or the reason.
int try_lock(int fd, int (*lock)(int, int)) {
  while (lock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

std::string first_line(int fd) {
  std::array<char, 512> bytes{};
  const ssize_t count = ::pread(fd, bytes.data(), bytes.size(), 0);
  const std::string text(bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  return text.substr(0, text.find('\n'));
}

// For people only, so that a failure is none of the run's. Flushed, because other hosts are to read it.
void sign(int fd) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string line = "host " + std::string(host.data()) + ", pid " + std::to_string(::getpid()) + "\n";
  if (::ftruncate(fd, 0) == 0 && ::pwrite(fd, line.data(), line.size(), 0) > 0) ::fsync(fd);
}

}  // namespace

FolderLock::FolderLock(const fs::path& folder, int (*lock)(int, int)) {
  const fs::path file = folder / ".lock";
  fd_ = open_lock(file);
  if (fd_ < 0) {
    throw InputError("output.directory = \"" + folder.string() + "\": cannot make " + file.string() + ": " +
                     std::strerror(errno) + "; name a folder that can be written to (output.directory=PATH)");
  }
  int error = try_lock(fd_, lock);
  for (int n = 1; n < tries && error == EWOULDBLOCK; ++n) {
    std::this_thread::sleep_for(between_tries);
    error = try_lock(fd_, lock);
  }
  if (error == 0) {
    sign(fd_);
    return;
  }
  const std::string holder = first_line(fd_);
  ::close(fd_);
  fd_ = -1;
  if (error == EWOULDBLOCK) {
    throw InputError("output.directory = \"" + folder.string() + "\": another run is writing there (" +
                     (holder.empty() ? "it has not told its host" : holder) +
                     "); name another folder (output.directory=PATH), or wait for that run or end it");
  }
  warning_ = "output.directory = \"" + folder.string() + "\": its file system cannot lock files (" + std::strerror(error) +
             "), so do not start a second run there while this one runs";
}

FolderLock::~FolderLock() {
  if (fd_ < 0) return;
  [[maybe_unused]] const int ignored = ::ftruncate(fd_, 0);
  ::close(fd_);
}

}  // namespace minipipe::core
