#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/io/folder_lock.hpp"

namespace minipipe::core {

// The names in a run's output folder.
struct OutputFolder {
  std::filesystem::path folder;
  std::filesystem::path trace() const { return folder / "trace.h5"; }
  std::filesystem::path summary() const { return folder / "summary.json"; }
  std::filesystem::path timeline() const { return folder / "timeline.json"; }
  std::filesystem::path checkpoints() const { return folder / "checkpoints"; }
};

// A run takes its folder in two steps, so that a start that fails in between leaves the results of an earlier run where they
// are. One rank only. InputError names output.directory and the reason.

// Makes the folder, takes its lock (see FolderLock) and proves that files can be written there.
std::unique_ptr<FolderLock> take_output_folder(const std::filesystem::path& folder);

// What was moved to a new folder previous.<n>, to be put back where the start fails after all.
class MovedResults {
 public:
  // Nothing was moved.
  MovedResults() = default;
  // Moves those of `results` that are there, and copies those of `copied`; all are in `folder`. All or nothing: InputError.
  MovedResults(const std::filesystem::path& folder, const std::vector<std::filesystem::path>& results,
               const std::vector<std::filesystem::path>& copied = {});

  // previous.<n>; nothing if there was nothing to move.
  const std::optional<std::filesystem::path>& moved_to() const { return moved_to_; }

  // Moves all back and removes previous.<n>. Returns where results are that cannot be moved back; empty if all are.
  std::string put_back();

 private:
  std::optional<std::filesystem::path> moved_to_;
  std::vector<std::pair<std::filesystem::path, std::filesystem::path>> moves_;  // from, to
  std::vector<std::filesystem::path> copies_, folders_;
};

// Of an earlier run, for a run that starts anew. Makes the folder of checkpoints.
MovedResults move_earlier_results(const std::filesystem::path& folder);

// For a run that goes on after update `step`: checkpoints of later updates, which would be taken for its own (the newest ones
// are kept, and resumed from), and the summary and the timeline of their run; a copy of its trace. Nothing where no checkpoint
// is later.
MovedResults move_results_beyond(const std::filesystem::path& folder, std::int64_t step);

}  // namespace minipipe::core
