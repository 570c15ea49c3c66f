#pragma once

#include <exception>
#include <string>

namespace minipipe::core {

// What a user is told of an error, in one line: what(), or, where memory was lacking, which array did not fit and what to
// change. Kokkos throws std::runtime_error with several lines of its own.
std::string error_text(const std::exception& error);

}  // namespace minipipe::core
