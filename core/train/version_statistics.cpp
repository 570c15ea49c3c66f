#include "core/train/version_statistics.hpp"

#include <algorithm>

namespace minipipe::core {

namespace {
void add_to(Histogram& sum, const Histogram& more) {
  sum.resize(std::max(sum.size(), more.size()));
  for (std::size_t value = 0; value < more.size(); ++value) sum[value] += more[value];
}
}  // namespace

std::int64_t largest(const Histogram& histogram) {
  std::int64_t result = 0;
  for (std::size_t value = 0; value < histogram.size(); ++value) {
    if (histogram[value] > 0) result = static_cast<std::int64_t>(value);
  }
  return result;
}

double mean(const Histogram& histogram) {
  double sum = 0;
  double count = 0;
  for (std::size_t value = 0; value < histogram.size(); ++value) {
    sum += static_cast<double>(value) * static_cast<double>(histogram[value]);
    count += static_cast<double>(histogram[value]);
  }
  return count > 0 ? sum / count : 0;
}

void VersionStatistics::add(const schedules::VersionReport& segment) {
  for (std::size_t stage = 0; stage < segment.gap_histogram.size(); ++stage) {
    add_to(gaps_[stage], segment.gap_histogram[stage]);
    add_to(delays_[stage], segment.delay_histogram[stage]);
  }
  add_to(skew_, schedules::histogram(segment.skew));
}

}  // namespace minipipe::core
