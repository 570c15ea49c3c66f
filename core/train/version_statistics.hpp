#pragma once

#include <cstdint>
#include <vector>

#include "schedules/check/versions.hpp"

namespace minipipe::core {

using Histogram = std::vector<std::int64_t>;  // [v] = microbatches with value v

std::int64_t largest(const Histogram& histogram);
double mean(const Histogram& histogram);

// Weight versions over a whole run, in updates. By stage: the gap between the versions that the forward and the backward of a
// microbatch used, and the delay of a gradient (version it is applied to minus version of its forward). Over the stages: the
// skew, version of a microbatch's forward on the last stage minus that on the first.
class VersionStatistics {
 public:
  explicit VersionStatistics(int stages) : gaps_(stages), delays_(stages) {}

  // What was measured in one segment.
  void add(const schedules::VersionReport& segment);

  const std::vector<Histogram>& gaps() const { return gaps_; }
  const std::vector<Histogram>& delays() const { return delays_; }
  const Histogram& skew() const { return skew_; }

 private:
  std::vector<Histogram> gaps_;
  std::vector<Histogram> delays_;
  Histogram skew_;
};

}  // namespace minipipe::core
