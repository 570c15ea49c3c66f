#pragma once

#include <algorithm>
#include <cstdint>

namespace minipipe::core {

// How many microbatches a replica evaluates before it looks for a request to stop again, 1 to `left`: about a second's work, as
// fast as the `done` ones before, which took `elapsed_s`. The pipe is empty between two parts, so that none is very short.
inline std::int64_t evaluation_part(std::int64_t done, std::int64_t left, double elapsed_s, int stages) {
  constexpr double part_s = 1;
  const std::int64_t least = std::max(8, 4 * stages);
  if (done == 0) return std::min(left, least);
  const double per_part = part_s * static_cast<double>(done) / std::max(1e-9, elapsed_s);
  return std::min(left, std::max(least, static_cast<std::int64_t>(std::min(1e9, per_part))));
}

}  // namespace minipipe::core
