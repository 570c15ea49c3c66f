#include "schedules/check/gaps.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

namespace minipipe::schedules {

ListMeasures measure(const ActionList& actions) {
  ListMeasures result;
  std::unordered_map<std::int64_t, std::int64_t> version_of_forward;
  std::int64_t updates = 0;
  std::int64_t live = 0;
  for (const Action& action : actions) {
    switch (action.kind) {
      case Kind::forward:
        version_of_forward[action.microbatch] = updates;
        result.peak_in_flight = std::max(result.peak_in_flight, ++live);
        break;
      case Kind::backward:
      case Kind::backward_input:
        if (const auto found = version_of_forward.find(action.microbatch); found != version_of_forward.end()) {
          result.gaps.push_back(updates - found->second);
          version_of_forward.erase(found);
        }
        if (action.kind == Kind::backward) --live;
        break;
      case Kind::backward_weight:
        --live;
        break;
      case Kind::update:
        ++updates;
        break;
      default:
        break;
    }
  }
  if (result.gaps.empty()) return result;
  result.gap_max = *std::max_element(result.gaps.begin(), result.gaps.end());
  result.histogram.resize(static_cast<std::size_t>(result.gap_max) + 1);
  for (const std::int64_t gap : result.gaps) ++result.histogram[static_cast<std::size_t>(gap)];
  const auto sum = std::accumulate(result.gaps.begin(), result.gaps.end(), std::int64_t{0});
  result.gap_mean = static_cast<double>(sum) / static_cast<double>(result.gaps.size());
  return result;
}

}  // namespace minipipe::schedules
