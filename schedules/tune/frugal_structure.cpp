#include <algorithm>
#include <numeric>

#include "schedules/tune/search.hpp"

namespace minipipe::schedules {
namespace {

// Units of memory in the place of times.
CostProfile memory_profile(CostProfile profile) {
  profile.clock = Clock::real;
  for (LayerCosts* costs : {&profile.embedding, &profile.head}) *costs = {costs->units, 0, 0, costs->units};
  for (LayerCosts& layer : profile.layers) layer = {layer.units, 0, 0, layer.units};
  return profile;
}

// The largest layer first, each to the emptiest device (Graham 1969).
Structure spread_memory(const TuneRequest& request) {
  const CostProfile& profile = request.profile;
  std::vector<double> units;
  for (const LayerCosts& layer : profile.layers) units.push_back(layer.units);
  units.front() += profile.embedding.units;
  units.back() += profile.head.units;
  std::vector<std::size_t> largest_first(units.size());
  std::iota(largest_first.begin(), largest_first.end(), std::size_t{0});
  std::stable_sort(largest_first.begin(), largest_first.end(),
                   [&](std::size_t a, std::size_t b) { return units[a] > units[b]; });
  std::vector<std::pair<double, int>> held(static_cast<std::size_t>(request.devices));  // units, layers
  std::vector<int> device_of(units.size());
  for (const std::size_t layer : largest_first) {
    const auto emptiest = std::min_element(held.begin(), held.end());
    emptiest->first += units[layer];
    ++emptiest->second;
    device_of[layer] = static_cast<int>(emptiest - held.begin());
  }
  Structure structure;
  for (const int device : device_of) {
    if (structure.rank_of_stage.empty() || structure.rank_of_stage.back() != device) {
      structure.rank_of_stage.push_back(device);
      structure.partition.push_back(0);
    }
    ++structure.partition.back();
  }
  return structure;
}

}  // namespace

Structure frugal_structure(const TuneRequest& request) {
  const auto graph = [&](const Structure& structure) {
    return make_graph(CostSums(request.profile), structure.partition, {request.devices, structure.rank_of_stage}, 1);
  };
  const auto needs = [&](const Structure& structure) {
    const auto units = least_units(graph(structure));
    return *std::max_element(units.begin(), units.end());
  };
  Structure sequence{min_max_partition(memory_profile(request.profile), request.devices),
                     one_stage_per_rank(request.devices).rank_of_stage,
                     {}};
  if (needs(sequence) <= request.cap) return sequence;
  Structure spread = spread_memory(request);
  const bool allowed = request.most_stages == 0 || static_cast<int>(spread.partition.size()) <= request.most_stages;
  if (!allowed || needs(spread) >= needs(sequence)) spread = sequence;
  check_cap(graph(spread), request.cap);
  return spread;
}

}  // namespace minipipe::schedules
