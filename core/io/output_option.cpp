#include "core/io/output_option.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/io/durable.hpp"
#include "core/io/output_target.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

void check_output(const std::string& option, const std::filesystem::path& file) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const std::string& reason) {
    throw InputError(option + " " + file.string() + ": cannot be written: " + reason +
                     "; give a file name in an existing, writable folder");
  };
  if (is_special(file)) {
    if (::access(file.c_str(), W_OK) != 0) refuse(std::strerror(errno));
    return;
  }
  const fs::path target = followed(file);
  std::error_code ignored;
  if (fs::is_directory(target, ignored) || !target.has_filename()) refuse("it is a folder");
  const fs::path folder = target.has_parent_path() ? target.parent_path() : fs::path(".");
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) refuse(folder.string() + " is not a folder");
  if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse(folder.string() + ": " + std::strerror(errno));
}

void naming_option(const std::string& option, const std::filesystem::path& file, const std::function<void()>& write) {
  try {
    write();
  } catch (const RunError& error) {
    throw RunError(option + " " + file.string() + ": not written (" + error.what() +
                   "); make room there, or give the path of another file");
  }
}

void write_output(const std::string& option, const std::filesystem::path& file, const std::string& text) {
  check_output(option, file);
  naming_option(option, file, [&] { write_text(file, text); });
}

void write_output(const std::string& option, const std::filesystem::path& file, std::uint64_t most_bytes,
                  const std::function<void(const std::filesystem::path&)>& write) {
  check_output(option, file);
  naming_option(option, file, [&] {
    TemporaryFile temporary(file);
    reserve(temporary.path(), most_bytes);
    write(temporary.path());
    temporary.publish();
  });
}

}  // namespace minipipe::core
