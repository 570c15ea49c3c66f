#include "schedules/check/gaps.hpp"

#include <algorithm>
#include <numeric>

#include "schedules/check/versions.hpp"

namespace minipipe::schedules {

ListMeasures measure(const ActionList& actions) { return measure(actions, ScheduleOptions{}); }

ListMeasures measure(const ActionList& actions, const ScheduleOptions& options) {
  ListMeasures result;
  result.peak_in_flight = static_cast<std::int64_t>(peak_memory(actions, 1, 1));
  for (const PassVersions& pass : versions_of(actions, options)) {
    if (pass.backward) result.gaps.push_back(*pass.backward - pass.forward);
  }
  if (result.gaps.empty()) return result;
  result.gap_max = *std::max_element(result.gaps.begin(), result.gaps.end());
  result.histogram = histogram(result.gaps);
  const auto sum = std::accumulate(result.gaps.begin(), result.gaps.end(), std::int64_t{0});
  result.gap_mean = static_cast<double>(sum) / static_cast<double>(result.gaps.size());
  return result;
}

double peak_memory(const ActionList& actions, double activations, double kept) {
  double live = 0, peak = 0;
  for (const Action& action : actions) {
    switch (action.kind) {
      case Kind::forward:
        live += activations;
        break;
      case Kind::backward:
        live -= activations;
        break;
      case Kind::backward_input:
        live -= activations - kept;
        break;
      case Kind::backward_weight:
        live -= kept;
        break;
      default:
        break;
    }
    peak = std::max(peak, live);
  }
  return peak;
}

ActionList only_stage(const ActionList& actions, int stage) {
  ActionList result;
  for (const Action& action : actions) {
    if (action.stage == stage) result.push_back(action);
  }
  return result;
}

}  // namespace minipipe::schedules
