#include <algorithm>
#include <numeric>
#include <utility>

#include "schedules/tune/search.hpp"

namespace minipipe::schedules {
namespace {

// Units of memory in the place of times. An end that costs no time is part of its neighbour.
CostProfile memory_profile(CostProfile profile) {
  profile.clock = Clock::real;
  if (!profile.has_embedding()) profile.layers.front().units += std::exchange(profile.embedding.units, 0);
  if (!profile.has_head()) profile.layers.back().units += std::exchange(profile.head.units, 0);
  for (LayerCosts* costs : {&profile.embedding, &profile.head}) *costs = {costs->units, 0, 0, costs->units};
  for (LayerCosts& layer : profile.layers) layer = {layer.units, 0, 0, layer.units};
  return profile;
}

// Spreads parts over devices, none of which may stay without, so that the fullest device holds as little as can be: the largest
// part first, each to the emptiest device (Graham 1969), then by branch and bound. So many steps at most that the answer is
// exact for any few parts or few sizes, and never takes long.
class Packing {
 public:
  Packing(std::vector<double> units, int devices) : units_(std::move(units)), held_(static_cast<std::size_t>(devices)) {
    order_.resize(units_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return units_[a] > units_[b]; });
    left_.assign(units_.size() + 1, 0);
    for (std::size_t i = units_.size(); i-- > 0;) left_[i] = left_[i + 1] + units_[order_[i]];
    device_of_.assign(units_.size(), 0);
    emptiest_first();
    steps_ = most_comparisons / (std::int64_t{devices} * devices);
    least_ = std::max(left_[0] / devices, units_[order_[0]]);
    held_.assign(held_.size(), {});
    place(0, 0);
  }

  double fullest() const { return fullest_; }
  const std::vector<int>& device_of() const { return best_; }

 private:
  struct Held {
    double units = 0;
    int parts = 0;
    auto operator<=>(const Held&) const = default;
  };

  void emptiest_first() {
    for (const std::size_t part : order_) {
      const auto emptiest = std::min_element(held_.begin(), held_.end());
      emptiest->units += units_[part];
      ++emptiest->parts;
      device_of_[part] = static_cast<int>(emptiest - held_.begin());
    }
    best_ = device_of_;
    fullest_ = std::max_element(held_.begin(), held_.end())->units;
  }

  // The parts from number `i` of the order on, where the fullest device holds `fullest`.
  void place(std::size_t i, double fullest) {
    if (fullest_ <= least_ || --steps_ < 0) return;
    if (i == order_.size()) {
      fullest_ = fullest;
      best_ = device_of_;
      return;
    }
    const std::size_t part = order_[i];
    const auto empty = static_cast<std::size_t>(
        std::count_if(held_.begin(), held_.end(), [](const Held& device) { return device.parts == 0; }));
    if (order_.size() - i < empty) return;
    double room = 0;  // below the best
    for (const Held& device : held_) room += std::max(0.0, fullest_ - device.units);
    if (room <= left_[i]) return;
    for (std::size_t d = 0; d < held_.size(); ++d) {
      const Held before = held_[d];
      // Devices that hold as much are alike.
      const auto same = [&](const Held& other) { return other == before; };
      if (std::any_of(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(d), same)) continue;
      const double units = before.units + units_[part];
      if (units >= fullest_) continue;
      held_[d] = {units, before.parts + 1};
      device_of_[part] = static_cast<int>(d);
      place(i + 1, std::max(fullest, units));
      held_[d] = before;
    }
  }

  static constexpr std::int64_t most_comparisons = 20000000;
  std::vector<double> units_;
  std::vector<Held> held_;
  std::vector<std::size_t> order_;  // the largest first
  std::vector<double> left_;        // units of the parts from a place of the order on
  std::vector<int> device_of_, best_;
  double fullest_ = 0, least_ = 0;
  std::int64_t steps_ = 0;  // left
};

// The stages of a partition spread at will; neighbours on one device are one stage.
Structure spread_memory(const TuneRequest& request, const std::vector<int>& partition, double* fullest) {
  std::vector<double> units;
  for (const LayerCosts& stage : CostSums(request.profile).stages(partition)) units.push_back(stage.units);
  const Packing packing(std::move(units), request.devices);
  *fullest = packing.fullest();
  Structure structure;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    const int device = packing.device_of()[s];
    if (structure.rank_of_stage.empty() || structure.rank_of_stage.back() != device) {
      structure.rank_of_stage.push_back(device);
      structure.partition.push_back(0);
    }
    structure.partition.back() += partition[s];
  }
  return structure;
}

// Every layer a stage, and so the ends that cost something.
std::vector<int> finest_partition(const CostProfile& profile) {
  std::vector<int> partition(profile.layers.size(), 1);
  if (profile.has_embedding()) partition.insert(partition.begin(), 0);
  if (profile.has_head()) partition.push_back(0);
  return partition;
}

// This plan may be needed to keep the cap, so only a limit that was given counts.
int most_stages_of(const TuneRequest& request) {
  return request.most_stages > 0 ? request.most_stages : request.profile.size() + 2;
}

}  // namespace

Structure frugal_structure(const TuneRequest& request) {
  const CostProfile memory = memory_profile(request.profile);
  Structure best{min_max_partition(memory, request.devices), one_stage_per_rank(request.devices).rank_of_stage, {}};
  const auto graph = [&] {
    return make_graph(CostSums(request.profile), best.partition, {request.devices, best.rank_of_stage}, 1);
  };
  const auto needed = least_units(graph());
  double least = *std::max_element(needed.begin(), needed.end());
  const auto consider = [&](const std::vector<int>& partition) {
    double fullest = 0;
    Structure spread = spread_memory(request, partition, &fullest);
    if (fullest >= least || static_cast<int>(spread.partition.size()) > most_stages_of(request)) return;
    least = fullest;
    best = std::move(spread);
  };
  if (least > request.cap) consider(finest_partition(request.profile));
  // Where that is too many stages, layers that follow each other go together.
  const int most = std::min(most_stages_of(request), request.profile.size());
  constexpr int tries = 16;
  for (int stages = most; stages > std::max(request.devices, most - tries) && least > request.cap; --stages) {
    consider(min_max_partition(memory, stages));
  }
  check_cap(graph(), request.cap);
  return best;
}

}  // namespace minipipe::schedules
