#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace minipipe::core {

// Which rows of a long table people see: all of up to 64; of more, the first and last eight and those that are worth it, in
// ascending order and each once. `all`: all of any number.
inline std::vector<std::size_t> shown_rows(std::size_t rows, bool all, const std::vector<std::size_t>& worth_it = {}) {
  constexpr std::size_t most = 64, at_ends = 8;
  std::vector<std::size_t> shown;
  for (std::size_t r = 0; r < rows; ++r) {
    if (all || rows <= most || r < at_ends || r + at_ends >= rows) shown.push_back(r);
  }
  shown.insert(shown.end(), worth_it.begin(), worth_it.end());
  std::ranges::sort(shown);
  const auto same = std::ranges::unique(shown);
  shown.erase(same.begin(), same.end());
  return shown;
}

// A line that says so; `others`: what is shown beside the ends. Empty if all rows are shown.
inline std::string rows_left_out(std::size_t rows, std::size_t shown, const std::string& others) {
  if (rows == shown) return "";
  return "  " + std::to_string(shown) + " of " + std::to_string(rows) + " rows: the first and last" + others +
         "; minipipe check --all-ranks shows all\n";
}

// The numbers of the rows with the smallest and the largest value, the first of equals.
template <class T>
std::vector<std::size_t> extremes(const std::vector<T>& values) {
  if (values.empty()) return {};
  const auto [least, most] = std::pair(std::ranges::min_element(values), std::ranges::max_element(values));
  return {static_cast<std::size_t>(least - values.begin()), static_cast<std::size_t>(most - values.begin())};
}

}  // namespace minipipe::core
