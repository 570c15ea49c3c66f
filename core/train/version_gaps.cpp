#include "core/train/version_gaps.hpp"

#include <algorithm>

namespace minipipe::core {

void VersionGaps::add(const std::vector<schedules::ListMeasures>& stages) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    auto& histogram = histograms_[s];
    const auto& more = stages[s].histogram;
    histogram.resize(std::max(histogram.size(), more.size()));
    for (std::size_t gap = 0; gap < more.size(); ++gap) histogram[gap] += more[gap];
  }
}

std::vector<std::int64_t> VersionGaps::maximum() const {
  std::vector<std::int64_t> result;
  for (const auto& histogram : histograms_) {
    std::int64_t largest = 0;
    for (std::size_t gap = 0; gap < histogram.size(); ++gap) {
      if (histogram[gap] > 0) largest = static_cast<std::int64_t>(gap);
    }
    result.push_back(largest);
  }
  return result;
}

std::vector<double> VersionGaps::mean() const {
  std::vector<double> result;
  for (const auto& histogram : histograms_) {
    double sum = 0;
    double count = 0;
    for (std::size_t gap = 0; gap < histogram.size(); ++gap) {
      sum += static_cast<double>(gap) * static_cast<double>(histogram[gap]);
      count += static_cast<double>(histogram[gap]);
    }
    result.push_back(count > 0 ? sum / count : 0);
  }
  return result;
}

}  // namespace minipipe::core
