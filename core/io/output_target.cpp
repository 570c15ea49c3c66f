#include "core/io/output_target.hpp"

#include <fcntl.h>

#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;

constexpr int most_links = 40;  // as the kernel's own limit

bool is_link(const fs::path& file) {
  std::error_code ignored;
  return fs::is_symlink(fs::symlink_status(file, ignored));
}

fs::path target_of(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error || target.is_absolute() ? target : link.parent_path() / target;
}

std::optional<int> stream_in_name(const fs::path& file) {
  const fs::path folder = file.parent_path();
  if (folder != "/proc/self/fd" && folder != "/dev/fd") return std::nullopt;
  const std::string name = file.filename().string();
  int number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

// /dev/stdout is a link to /proc/self/fd/1. To open that anew would write over what else goes there, if it is a file.
std::optional<int> stream_of(fs::path file) {
  for (int n = 0; n < most_links; ++n) {
    if (const auto stream = stream_in_name(file)) return stream;
    if (!is_link(file)) return std::nullopt;
    file = target_of(file);
  }
  return std::nullopt;
}

}  // namespace

bool is_special(const fs::path& file) {
  if (stream_of(file)) return true;
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

fs::path followed(const fs::path& file) {
  if (is_special(file)) return file;
  fs::path result = file;
  for (int n = 0; n < most_links && is_link(result); ++n) result = target_of(result);
  return result;
}

int open_special(const fs::path& file) {
  const auto stream = stream_of(file);
  if (!stream) return ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  std::fflush(nullptr);
  return ::fcntl(*stream, F_DUPFD_CLOEXEC, 0);
}

}  // namespace minipipe::core
