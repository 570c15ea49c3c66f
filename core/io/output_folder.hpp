#pragma once

#include <filesystem>
#include <memory>
#include <optional>

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

// Moves results of an earlier run to previous.<n>, whose path it returns; nothing if there are none. Makes the folder of
// checkpoints.
std::optional<std::filesystem::path> clear_output_folder(const std::filesystem::path& folder);

}  // namespace minipipe::core
