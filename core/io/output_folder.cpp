#include "core/io/output_folder.hpp"

#include <string>
#include <system_error>

#include "core/io/checkpoint.hpp"
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

// A new folder previous.<n>, the first that is free.
fs::path make_previous(const fs::path& folder) {
  for (int number = 1;; ++number) {
    const fs::path name = folder / ("previous." + std::to_string(number));
    if (fs::exists(fs::symlink_status(name))) continue;
    if (fs::create_directory(name)) return name;
  }
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

MovedResults::MovedResults(const fs::path& folder, const std::vector<fs::path>& results, const std::vector<fs::path>& copied) {
  const auto destination = [&](const fs::path& file) { return *moved_to_ / file.lexically_relative(folder); };
  try {
    for (const fs::path& file : copied) {
      if (!is_result(file)) continue;
      if (!moved_to_) moved_to_ = make_previous(folder);
      copies_.push_back(destination(file));
      copy_bytes(file, copies_.back());
    }
    for (const fs::path& file : results) {
      if (!is_result(file)) continue;
      if (!moved_to_) moved_to_ = make_previous(folder);
      const fs::path to = destination(file);
      if (!fs::exists(to.parent_path())) {
        fs::create_directories(to.parent_path());
        folders_.push_back(to.parent_path());
      }
      fs::rename(file, to);
      moves_.emplace_back(file, to);
    }
  } catch (const std::exception& error) {
    const std::string left = put_back();
    fail(folder, error.what() + (left.empty() ? "" : "; " + left));
  }
}

std::string MovedResults::put_back() {
  std::string left;
  for (auto move = moves_.rbegin(); move != moves_.rend(); ++move) {
    // Over the empty folder of checkpoints that was made anew, too.
    std::error_code error;
    fs::rename(move->second, move->first, error);
    if (error) left += (left.empty() ? "" : ", ") + move->second.string() + " (" + error.message() + ")";
  }
  moves_.clear();
  if (!left.empty()) return "results of the earlier run cannot be moved back and are in " + left;
  std::error_code ignored;
  for (const auto* made : {&copies_, &folders_}) {
    for (const fs::path& path : *made) fs::remove(path, ignored);
  }
  if (moved_to_) fs::remove(*moved_to_, ignored);
  moved_to_.reset();
  return "";
}

MovedResults move_earlier_results(const fs::path& folder) {
  const OutputFolder output{folder};
  if (!has_results(output)) return {};
  MovedResults moved(folder, {output.trace(), output.summary(), output.timeline(), output.checkpoints()});
  try {
    make_folder(output.checkpoints(), folder);
  } catch (const InputError&) {
    moved.put_back();
    throw;
  }
  return moved;
}

MovedResults move_results_beyond(const fs::path& folder, std::int64_t step) {
  const OutputFolder output{folder};
  std::vector<fs::path> results = checkpoints_beyond(output.checkpoints(), step);
  if (results.empty()) return {};
  // They tell of the end that those updates had.
  for (const fs::path& file : {output.summary(), output.timeline()}) results.push_back(file);
  return {folder, results, {output.trace()}};
}

}  // namespace minipipe::core
