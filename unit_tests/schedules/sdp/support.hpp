#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "schedules/error.hpp"
#include "schedules/sdp/masks.hpp"

namespace minipipe::schedules {

inline std::string shown(const MaskOptions& o) {
  return std::to_string(o.workers) + " workers, " + std::to_string(o.units) + " units, coverage " + std::to_string(o.coverage);
}

// The text of the InputError that making the masks throws; empty if it throws none.
template <class Options, class Make>
std::string refusal(const Options& options, const Make& make) {
  try {
    make(options);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

inline std::vector<int> holder_counts(const Masks& masks) {
  std::vector<int> counts;
  for (const auto& holders : masks.holders) counts.push_back(static_cast<int>(holders.size()));
  return counts;
}

// Largest minus smallest.
inline int spread(const std::vector<int>& counts) {
  const auto [low, high] = std::minmax_element(counts.begin(), counts.end());
  return *high - *low;
}

// Reachability from worker 0 by steps over shared units, without the library's own test.
inline bool reachable(const Masks& masks) {
  std::vector<bool> seen(static_cast<std::size_t>(masks.workers), false);
  std::vector<int> open{0};
  seen[0] = true;
  while (!open.empty()) {
    const int worker = open.back();
    open.pop_back();
    for (const auto& holders : masks.holders) {
      if (std::find(holders.begin(), holders.end(), worker) == holders.end()) continue;
      for (const int other : holders) {
        if (seen[static_cast<std::size_t>(other)]) continue;
        seen[static_cast<std::size_t>(other)] = true;
        open.push_back(other);
      }
    }
  }
  return std::find(seen.begin(), seen.end(), false) == seen.end();
}

}  // namespace minipipe::schedules
