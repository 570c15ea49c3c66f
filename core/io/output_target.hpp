#pragma once

#include <filesystem>

namespace minipipe::core {

// What the name of an output stands for. A regular file, or none yet, is replaced as a whole (see durable.hpp). A device, a
// pipe or a stream of this process is written to: a rename would put a file in its place.

// Whether `file` is there and is neither a regular file nor a folder, or names a descriptor of this process (/dev/stdout,
// /dev/fd/N, /proc/self/fd/N), whatever that leads to.
bool is_special(const std::filesystem::path& file);

// The file that symbolic links lead to, there or not, so that a rename replaces that and not the link. Special ones: as given.
std::filesystem::path followed(const std::filesystem::path& file);

// A descriptor to write to a special file, for the caller to close; of a stream of this process a duplicate, behind what the
// process has printed so far. -1 and errno if it cannot be opened. Opening a pipe waits for its reader.
int open_special(const std::filesystem::path& file);

}  // namespace minipipe::core
