#include "core/io/output_folder.hpp"

#include <string>
#include <system_error>

#include "core/io/durable.hpp"
#include "core/io/output_target.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, const std::string& reason) {
  throw InputError("output.directory = \"" + folder.string() + "\": " + reason +
                   "; name a folder that can be written to (output.directory=PATH)");
}

void make_folder(const fs::path& folder, const fs::path& named) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(named, "cannot make " + folder.string() + ": " + error.message());
  if (!fs::is_directory(folder, error)) fail(named, folder.string() + " is there and is not a folder");
}

// A device or a pipe that somebody put there holds no results: it stays, and is written to.
bool is_result(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(file, ignored) && !is_special(file);
}

bool has_results(const OutputFolder& output) {
  std::error_code error;
  for (const fs::path& file : {output.trace(), output.summary(), output.timeline()}) {
    if (is_result(file)) return true;
  }
  return fs::is_directory(output.checkpoints(), error) && !fs::is_empty(output.checkpoints(), error);
}

fs::path free_name(const fs::path& folder) {
  int number = 1;
  while (fs::exists(folder / ("previous." + std::to_string(number)))) ++number;
  return folder / ("previous." + std::to_string(number));
}

}  // namespace

std::unique_ptr<FolderLock> take_output_folder(const fs::path& folder) {
  if (folder.empty()) fail(folder, "the name is empty");
  make_folder(folder, folder);
  auto lock = std::make_unique<FolderLock>(folder);
  const OutputFolder output{folder};
  make_folder(output.checkpoints(), folder);
  if (is_special(output.trace())) {
    fail(folder, output.trace().string() + " is a device or a pipe, but a trace is read and written again");
  }
  try {
    for (const fs::path& written : {folder, output.checkpoints()}) {
      const fs::path probe = written / ".minipipe-writable";
      write_text(probe, "");
      fs::remove(probe);
    }
  } catch (const fs::filesystem_error& error) {
    fail(folder, error.what());
  } catch (const RunError& error) {
    fail(folder, error.what());
  }
  return lock;
}

std::optional<fs::path> clear_output_folder(const fs::path& folder) {
  const OutputFolder output{folder};
  std::optional<fs::path> moved_to;
  try {
    if (!has_results(output)) return moved_to;
    moved_to = free_name(folder);
    fs::create_directory(*moved_to);
    for (const fs::path& result : {output.trace(), output.summary(), output.timeline(), output.checkpoints()}) {
      if (is_result(result)) fs::rename(result, *moved_to / result.filename());
    }
  } catch (const fs::filesystem_error& error) {
    fail(folder, error.what());
  }
  make_folder(output.checkpoints(), folder);
  return moved_to;
}

}  // namespace minipipe::core
