#pragma once

#include <filesystem>
#include <string>

namespace minipipe::core {

// Files that are whole or absent: written under a temporary name in the same folder, flushed to the device, renamed.
// A reader, or a run that was killed, never sees half a file under the final name. All functions throw RunError with the path
// and the system's reason.

// "a/b.h5" -> "a/.b.h5.tmp": same folder, so that the rename is atomic; hidden, so that patterns such as *.h5 pass it by.
std::filesystem::path temporary_name(const std::filesystem::path& final_name);

// Flushes a file's data, or a folder's list of names, to the device.
void sync_file(const std::filesystem::path& file);
void sync_folder(const std::filesystem::path& folder);

// Flushes `temporary`, renames it to `final_name` (replacing that) and flushes the folder.
void publish(const std::filesystem::path& temporary, const std::filesystem::path& final_name);

// Writes a whole text file durably.
void write_text(const std::filesystem::path& file, const std::string& text);

// Copies a file's bytes, replacing `to`.
void copy_bytes(const std::filesystem::path& from, const std::filesystem::path& to);

// Removes the temporary file of `final_name` at the end of the scope unless it was published.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path final_name);
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
