#pragma once

#include <sys/file.h>

#include <filesystem>
#include <string>

namespace minipipe::core {

// A run's hold on its output folder: an advisory lock (flock) on the file .lock in it, which tells who holds it in one line,
// "host HOST, pid PID". The kernel gives the lock up with the process, however that ends, so that a file left behind by a run
// that was killed bars nobody; that is why it is not the file's existence that counts. The file stays, empty, at the end: to
// remove it would let a third run lock a new file while the second waits for the old one.
class FolderLock {
 public:
  // One rank only. Tries for about a second, in which a run that is just ending may let go. InputError (naming
  // output.directory, the holder and the remedy) if another run has the folder, or if the file cannot be made.
  // `lock` is flock(2), or a test's stand-in for a file system without it.
  explicit FolderLock(const std::filesystem::path& folder, int (*lock)(int, int) = ::flock);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Why nothing is locked, where the file system has no such locks (Lustre mounted without them, NFS without its lock service);
  // otherwise empty. The run goes on then, as it would without this class.
  const std::string& warning() const { return warning_; }

 private:
  int fd_ = -1;
  std::string warning_;
};

}  // namespace minipipe::core
