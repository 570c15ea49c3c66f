#pragma once

#include <ctime>

namespace minipipe::core {

// Seconds of this process's processor time: what other processes take does not count.
inline double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace minipipe::core
