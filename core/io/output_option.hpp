#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace minipipe::core {

// Files that an option of the command line names. `option` is for messages: "--export".

// Told before the work, not after it: InputError if `file` is a folder, or is not in an existing, writable one, or cannot be
// written to. Makes and opens nothing: to open a pipe would wait for its reader.
void check_output(const std::string& option, const std::filesystem::path& file);

// Calls `write`; its RunError becomes one that names the option and a remedy, too.
void naming_option(const std::string& option, const std::filesystem::path& file, const std::function<void()>& write);

// write_text with errors that name the option and a remedy: InputError as check_output, RunError if the write fails.
void write_output(const std::string& option, const std::filesystem::path& file, const std::string& text);

// The same for an HDF5 file of at most so many bytes: `write` makes it under the name it is given, which becomes the final one.
// Room is looked for first (see reserve).
void write_output(const std::string& option, const std::filesystem::path& file, std::uint64_t most_bytes,
                  const std::function<void(const std::filesystem::path&)>& write);

}  // namespace minipipe::core
