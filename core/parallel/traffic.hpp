#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace minipipe::core {

// What replicas send to each other, by purpose. Names for reports in the same order.
enum class TrafficPurpose { reduce_scatter, all_gather, parameter_gather, refresh, average, evaluation, norm };
inline constexpr std::array<std::string_view, 7> traffic_names{
    "reduce_scatter", "all_gather", "parameter_gather", "refresh", "average", "evaluation", "norm"};
inline constexpr std::size_t traffic_purposes = traffic_names.size();

constexpr std::string_view name(TrafficPurpose purpose) { return traffic_names[static_cast<std::size_t>(purpose)]; }

// Bytes of messages that this replica sent, counted where they are sent.
struct Traffic {
  std::array<std::int64_t, traffic_purposes> bytes{};

  std::int64_t operator[](TrafficPurpose purpose) const { return bytes[static_cast<std::size_t>(purpose)]; }
  std::int64_t& operator[](TrafficPurpose purpose) { return bytes[static_cast<std::size_t>(purpose)]; }
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t b : bytes) sum += b;
    return sum;
  }
  Traffic& operator+=(const Traffic& other) {
    for (std::size_t p = 0; p < traffic_purposes; ++p) bytes[p] += other.bytes[p];
    return *this;
  }
  Traffic& operator-=(const Traffic& other) {
    for (std::size_t p = 0; p < traffic_purposes; ++p) bytes[p] -= other.bytes[p];
    return *this;
  }
};

}  // namespace minipipe::core
