#pragma once

#include <filesystem>
#include <optional>

namespace minipipe::core {

// The names in a run's output folder.
struct OutputFolder {
  std::filesystem::path folder;
  std::filesystem::path trace() const { return folder / "trace.h5"; }
  std::filesystem::path summary() const { return folder / "summary.json"; }
  std::filesystem::path timeline() const { return folder / "timeline.json"; }
  std::filesystem::path checkpoints() const { return folder / "checkpoints"; }
  // Where results of an earlier run were moved to by prepare_output_folder.
  std::optional<std::filesystem::path> moved_to;
};

// Makes the folder and its folder of checkpoints and proves that files can be written there. Results of an earlier run are
// moved to previous.<n>, unless `resume`. One rank only. InputError names output.directory and the reason.
OutputFolder prepare_output_folder(const std::filesystem::path& folder, bool resume);

}  // namespace minipipe::core
