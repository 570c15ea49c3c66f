#include "schedules/tune/profile.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

LayerCosts rounded(LayerCosts costs) {
  for (double* value : {&costs.forward, &costs.backward_input, &costs.backward_weight}) {
    *value = std::round(*value * kTicksPerMillisecond);
  }
  return costs;
}

LayerCosts sum(LayerCosts a, const LayerCosts& b) {
  a.forward += b.forward;
  a.backward_input += b.backward_input;
  a.backward_weight += b.backward_weight;
  a.units += b.units;
  a.activation_bytes += b.activation_bytes;
  a.parameter_bytes += b.parameter_bytes;
  a.gradient_bytes += b.gradient_bytes;
  return a;
}

LayerCosts difference(LayerCosts a, const LayerCosts& b) {
  a.forward -= b.forward;
  a.backward_input -= b.backward_input;
  a.backward_weight -= b.backward_weight;
  a.units -= b.units;
  a.activation_bytes -= b.activation_bytes;
  a.parameter_bytes -= b.parameter_bytes;
  a.gradient_bytes -= b.gradient_bytes;
  return a;
}

void check(const LayerCosts& costs, const std::string& where) {
  for (const double value : {costs.forward, costs.backward_input, costs.backward_weight, costs.units, costs.activation_bytes,
                             costs.parameter_bytes, costs.gradient_bytes}) {
    if (value >= 0 && std::isfinite(value)) continue;
    throw InputError("profile: " + where + " has a cost of " + std::to_string(value) + "; costs must be 0 or more");
  }
}

}  // namespace

CostProfile in_ticks(CostProfile profile) {
  if (profile.clock == Clock::ticks) return profile;
  for (LayerCosts& layer : profile.layers) layer = rounded(layer);
  profile.embedding = rounded(profile.embedding);
  profile.head = rounded(profile.head);
  profile.link = std::round(profile.link * kTicksPerMillisecond);
  profile.clock = Clock::ticks;
  return profile;
}

void validate(const CostProfile& profile) {
  if (profile.layers.empty()) throw InputError("profile: has no layers");
  for (std::size_t i = 0; i < profile.layers.size(); ++i) check(profile.layers[i], "layer " + std::to_string(i));
  check(profile.embedding, "the embedding");
  check(profile.head, "the head");
  if (!(profile.link >= 0)) throw InputError("profile: the link's time must be 0 or more");
}

CostSums::CostSums(const CostProfile& profile) : profile_(profile) {
  sums_.push_back({.units = 0});
  for (const LayerCosts& layer : profile.layers) sums_.push_back(sum(sums_.back(), layer));
}

LayerCosts CostSums::stage(int first, int last, bool is_first, bool is_last) const {
  LayerCosts costs = difference(sums_[static_cast<std::size_t>(last)], sums_[static_cast<std::size_t>(first)]);
  if (is_first) costs = sum(costs, profile_.embedding);
  if (is_last) costs = sum(costs, profile_.head);
  const double least = profile_.clock == Clock::ticks ? 1 : 0;
  // Differences of sums of milliseconds may be off by a rounding error; no time is negative.
  costs.forward = std::max(least, costs.forward);
  costs.backward_input = std::max(least, costs.backward_input);
  costs.backward_weight = std::max(least, costs.backward_weight);
  return costs;
}

std::vector<LayerCosts> CostSums::stages(const std::vector<int>& partition) const {
  std::vector<LayerCosts> result;
  result.reserve(partition.size());
  int first = 0;
  for (std::size_t s = 0; s < partition.size(); ++s) {
    result.push_back(stage(first, first + partition[s], s == 0, s + 1 == partition.size()));
    first += partition[s];
  }
  return result;
}

double lower_bound(const CostProfile& profile, int devices, int microbatches) {
  // What no partition takes apart. An end that costs nothing never stands alone.
  std::vector<LayerCosts> parts = profile.layers;
  if (profile.has_embedding()) parts.insert(parts.begin(), profile.embedding);
  if (profile.has_head()) parts.push_back(profile.head);
  const double m = microbatches;
  double work = 0, forwards = 0, backwards = 0, bound = 0;
  // The last input gradient of all is the first stage's, and its weight gradient comes behind it.
  const double last_weight = parts.front().backward_weight;
  for (const LayerCosts& part : parts) {
    const double both = part.forward + part.backward_input;
    bound = std::max({bound, forwards + m * part.time(), forwards + m * both + backwards + last_weight});
    forwards += part.forward;
    backwards += part.backward_input;
    work += m * part.time();
  }
  bound = std::max(bound, forwards + backwards + last_weight + 2 * (devices - 1) * profile.link);
  bound = std::max(bound, work / devices);
  // Of the k * devices + 1 longest parts, one device has k + 1, the shortest of them at least.
  std::sort(parts.begin(), parts.end(), [](const LayerCosts& a, const LayerCosts& b) { return a.time() > b.time(); });
  const auto step = static_cast<std::size_t>(devices);
  for (std::size_t k = 1; k * step < parts.size(); ++k) {
    double shortest = 0;
    for (std::size_t i = k * step - k; i <= k * step; ++i) shortest += parts[i].time();
    bound = std::max(bound, m * shortest);
  }
  // Every workload takes a tick.
  return profile.clock == Clock::ticks ? std::max(bound, 3 * m) : bound;
}

std::vector<int> uniform_partition(int layers, int stages) {
  if (stages < 1 || stages > layers) {
    throw InputError("partition: " + std::to_string(stages) + " stages do not fit " + std::to_string(layers) +
                     " layers; each stage needs one");
  }
  std::vector<int> partition;
  for (int s = 0; s < stages; ++s) partition.push_back(layers / stages + (s < layers % stages ? 1 : 0));
  return partition;
}

std::vector<int> min_max_partition(const CostProfile& profile, int stages) {
  const int n = profile.size();
  const int ends = stages == 1 ? 0 : (profile.has_embedding() ? 1 : 0) + (profile.has_head() ? 1 : 0);
  if (stages > n + ends) {
    throw InputError("partition: " + std::to_string(stages) + " stages are more than the " + std::to_string(n) +
                     " layers of the model; use fewer stages or devices");
  }
  const CostSums sums(profile);
  struct Best {
    double longest = std::numeric_limits<double>::infinity();
    double squares = std::numeric_limits<double>::infinity();
    int from = -1;
  };
  std::vector<std::vector<Best>> best(static_cast<std::size_t>(stages) + 1, std::vector<Best>(static_cast<std::size_t>(n) + 1));
  best[0][0] = {0, 0, 0};
  for (int s = 1; s <= stages; ++s) {
    const bool first = s == 1;
    const bool last = s == stages;
    const bool may_be_empty = stages > 1 && ((first && profile.has_embedding()) || (last && profile.has_head()));
    for (int end = 0; end <= n; ++end) {
      Best& target = best[static_cast<std::size_t>(s)][static_cast<std::size_t>(end)];
      // From the shortest stage on: once it alone is longer than the best, all others are too.
      for (int begin = end - (may_be_empty ? 0 : 1); begin >= 0; --begin) {
        const double time = sums.stage(begin, end, first, last).time();
        if (time > target.longest) break;
        const Best& before = best[static_cast<std::size_t>(s) - 1][static_cast<std::size_t>(begin)];
        if (before.from < 0) continue;
        const double longest = std::max(before.longest, time);
        const double squares = before.squares + time * time;
        if (longest < target.longest || (longest == target.longest && squares <= target.squares)) {
          target = {longest, squares, begin};
        }
      }
    }
  }
  std::vector<int> partition(static_cast<std::size_t>(stages));
  for (int s = stages, end = n; s > 0; --s) {
    const int begin = best[static_cast<std::size_t>(s)][static_cast<std::size_t>(end)].from;
    partition[static_cast<std::size_t>(s) - 1] = end - begin;
    end = begin;
  }
  return partition;
}

}  // namespace minipipe::schedules
