#pragma once

#include <map>
#include <string>

#include "schedules/tune/profile.hpp"

namespace minipipe::schedules {

// Published layer times of Nemotron-Nano-v2-9B (SimPipe), in ticks.
inline CostProfile nemotron_nano() {
  const std::map<char, LayerCosts> costs = {
      {'M', {2.6768, 4.2984, 1.7599}}, {'-', {1.8477, 1.9090, 1.6866}}, {'*', {1.9254, 2.4534, 0.6547}}};
  CostProfile profile;
  profile.pattern = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-";
  for (const char symbol : profile.pattern) profile.layers.push_back(costs.at(symbol));
  profile.embedding = {0.7589, 2.8654, 0, 0};
  profile.head = {14.2155, 15.7056, 0.0595, 0};
  return in_ticks(profile);
}

inline CostProfile equal_layers(int layers, double forward, double backward, double weight) {
  CostProfile profile;
  profile.layers.assign(static_cast<std::size_t>(layers), {forward, backward, weight});
  profile.clock = Clock::ticks;
  return profile;
}

inline Placement placement_from(const std::vector<std::vector<int>>& stages_of_device, int stages) {
  Placement placement{static_cast<int>(stages_of_device.size()), std::vector<int>(static_cast<std::size_t>(stages), -1)};
  for (std::size_t d = 0; d < stages_of_device.size(); ++d) {
    for (const int s : stages_of_device[d]) placement.rank_of_stage[static_cast<std::size_t>(s)] = static_cast<int>(d);
  }
  return placement;
}

}  // namespace minipipe::schedules
