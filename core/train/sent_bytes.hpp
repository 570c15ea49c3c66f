#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/parallel/traffic.hpp"

namespace minipipe::core {

// Bytes that one rank sent while training, counted where they are sent. A plain record.
struct SentBytes {
  Traffic replicas;           // to other replicas; evaluations apart
  std::int64_t pipeline = 0;  // activations and their gradients to neighbouring stages on other ranks

  SentBytes& operator+=(const SentBytes& other) {
    replicas += other.replicas;
    pipeline += other.pipeline;
    return *this;
  }
  SentBytes& operator-=(const SentBytes& other) {
    replicas -= other.replicas;
    pipeline -= other.pipeline;
    return *this;
  }

  // With the names of reports.
  std::vector<std::pair<std::string, std::int64_t>> purposes() const {
    std::vector<std::pair<std::string, std::int64_t>> result{{"pipeline", pipeline}};
    for (std::size_t p = 0; p < traffic_purposes; ++p) {
      if (static_cast<TrafficPurpose>(p) == TrafficPurpose::evaluation) continue;
      result.emplace_back(traffic_names[p], replicas.bytes[p]);
    }
    return result;
  }
};

}  // namespace minipipe::core
