#pragma once

#include <cstdint>
#include <vector>

#include "schedules/check/gaps.hpp"

namespace minipipe::core {

// Updates between a microbatch's forward and its backward on each stage, over the whole run.
class VersionGaps {
 public:
  explicit VersionGaps(int stages) : histograms_(stages) {}

  // What the checker measured in one segment, by stage.
  void add(const std::vector<schedules::ListMeasures>& stages);

  std::vector<std::int64_t> maximum() const;
  std::vector<double> mean() const;
  // [stage][gap] = microbatches with that gap.
  const std::vector<std::vector<std::int64_t>>& histograms() const { return histograms_; }

 private:
  std::vector<std::vector<std::int64_t>> histograms_;
};

}  // namespace minipipe::core
