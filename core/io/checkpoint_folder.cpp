// The folder of checkpoints: names, the newest whole one, which to keep.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <system_error>

#include "core/io/checkpoint.hpp"
#include "core/io/durable.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

namespace fs = std::filesystem;

// The step in "step_00000040.h5" (eight digits, more if it needs more); nothing for other names.
std::optional<std::int64_t> step_in_name(const std::string& name) {
  const std::string prefix("step_");
  const std::string suffix(".h5");
  if (name.size() < prefix.size() + 8 + suffix.size() || name.compare(0, prefix.size(), prefix) != 0 ||
      name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
    return std::nullopt;
  }
  std::int64_t step = 0;
  const char* end = name.data() + name.size() - suffix.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || stop != end) return std::nullopt;
  return step;
}

std::map<std::int64_t, fs::path> checkpoints_in(const fs::path& folder) {
  std::map<std::int64_t, fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_in_name(entry->path().filename().string())) found[*step] = entry->path();
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw InputError(folder.string() + ": cannot be searched for checkpoints: " + error.message());
  }
  return found;
}

}  // namespace

fs::path checkpoint_path(const fs::path& folder, std::int64_t step) {
  char name[48];
  std::snprintf(name, sizeof name, "step_%08lld.h5", static_cast<long long>(step));
  return folder / name;
}

std::optional<fs::path> latest_checkpoint(const fs::path& folder, std::string* warning) {
  const auto found = checkpoints_in(folder);
  for (auto candidate = found.rbegin(); candidate != found.rend(); ++candidate) {
    try {
      read_checkpoint_state(candidate->second);
      return candidate->second;
    } catch (const InputError& error) {
      if (warning != nullptr) *warning += std::string("skipped ") + error.what() + "\n";
    }
  }
  return std::nullopt;
}

std::vector<fs::path> checkpoints_beyond(const fs::path& folder, std::int64_t step) {
  std::vector<fs::path> result;
  for (const auto& [found, path] : checkpoints_in(folder)) {
    if (found > step) result.push_back(path);
  }
  return result;
}

void keep_last(const fs::path& folder, int keep) {
  const auto found = checkpoints_in(folder);
  std::vector<fs::path> stale;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.size() > 5 && name.front() == '.' && name.compare(name.size() - 4, 4, ".tmp") == 0 &&
        step_in_name(name.substr(1, name.size() - 5))) {
      stale.push_back(entry->path());
    }
  }
  if (keep >= 1) {
    std::size_t excess = found.size() - std::min(found.size(), static_cast<std::size_t>(keep));
    for (const auto& [step, path] : found) {
      if (excess-- == 0) break;
      stale.push_back(path);
    }
  }
  for (const fs::path& path : stale) {
    fs::remove(path, error);
    if (error) throw RunError(path.string() + ": cannot remove an old checkpoint: " + error.message());
  }
}

}  // namespace minipipe::core
