#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace minipipe::core {

// Mean of the values without the lowest and the highest tenth; 0 of nothing. Times of one kind of work have several modes (the
// first microbatch after an update differs from the others), which a median would not weigh, and rare outliers (an interrupt),
// which a mean would.
inline double trimmed_mean(std::vector<double> values) {
  if (values.empty()) return 0;
  const std::size_t cut = values.size() / 10;
  std::sort(values.begin(), values.end());
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(cut), last = values.end() - static_cast<std::ptrdiff_t>(cut);
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

}  // namespace minipipe::core
