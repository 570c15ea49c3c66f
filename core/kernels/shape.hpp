#pragma once

#include "core/types/types.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

// Shape errors are mistakes of the caller; without this check they would be silent writes to other arrays.
inline void require_shape(bool fits, const char* kernel) {
  if (!fits) {
    throw RunError(std::string(kernel) + ": the shapes of the arrays do not fit together");
  }
}

template <class View>
std::int64_t extent(const View& view, int dimension) {
  return static_cast<std::int64_t>(view.extent(dimension));
}

}  // namespace minipipe::core
