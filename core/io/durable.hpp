#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace minipipe::core {

// Files that are whole or absent: written under a temporary name in the same folder, flushed to the device, renamed.
// A reader, or a run that was killed, never sees half a file under the final name. Where the name is a device's or a pipe's
// (see is_special), that is written to instead; where it is a symbolic link, its target is replaced. All functions throw
// RunError with the path and the system's reason.

// "a/b.h5" -> "a/.b.h5.tmp": same folder, so that the rename is atomic; hidden, so that patterns such as *.h5 pass it by.
std::filesystem::path temporary_name(const std::filesystem::path& final_name);

// Flushes a file's data, or a folder's list of names, to the device.
void sync_file(const std::filesystem::path& file);
void sync_folder(const std::filesystem::path& folder);

// Flushes `temporary`, renames it to `final_name` (replacing that, a link too) and flushes the folder. The bytes for a special
// file are copied, and `temporary` is removed.
void publish(const std::filesystem::path& temporary, const std::filesystem::path& final_name);

// Writes a whole text file durably.
void write_text(const std::filesystem::path& file, const std::string& text);

// Copies a file's bytes, replacing `to`.
void copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to);

// Makes sure that the file (made if needed) can grow to `bytes`, and where the file system can, takes the room: its length may
// then be `bytes`. HDF5 does not survive a write that fails while it closes a file (the identifier stays behind and the
// process crashes when the library ends), so that a full disk has to be met before HDF5 starts, not by HDF5.
void reserve(const std::filesystem::path& file, std::uint64_t bytes);

// Removes the temporary file of `final_name` at the end of the scope unless it was published. Links are followed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& final_name);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void publish();

 private:
  std::filesystem::path final_name_;
  std::filesystem::path path_;
};

}  // namespace minipipe::core
