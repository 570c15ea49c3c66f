#include "core/io/output_folder.hpp"

#include <string>
#include <system_error>

#include "core/io/durable.hpp"
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

bool has_results(const OutputFolder& output) {
  std::error_code error;
  if (fs::exists(output.trace(), error) || fs::exists(output.summary(), error) || fs::exists(output.timeline(), error))
    return true;
  return fs::is_directory(output.checkpoints(), error) && !fs::is_empty(output.checkpoints(), error);
}

fs::path free_name(const fs::path& folder) {
  int number = 1;
  while (fs::exists(folder / ("previous." + std::to_string(number)))) ++number;
  return folder / ("previous." + std::to_string(number));
}

}  // namespace

OutputFolder prepare_output_folder(const fs::path& folder, bool resume) {
  OutputFolder output{folder, std::nullopt};
  if (folder.empty()) fail(folder, "the name is empty");
  make_folder(folder, folder);
  try {
    if (!resume && has_results(output)) {
      const fs::path target = free_name(folder);
      fs::create_directory(target);
      for (const fs::path& result : {output.trace(), output.summary(), output.timeline(), output.checkpoints()}) {
        if (fs::exists(result)) fs::rename(result, target / result.filename());
      }
      output.moved_to = target;
    }
    make_folder(output.checkpoints(), folder);
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
  return output;
}

}  // namespace minipipe::core
