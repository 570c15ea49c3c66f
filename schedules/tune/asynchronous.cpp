#include "schedules/tune/asynchronous.hpp"

#include <algorithm>
#include <limits>
#include <tuple>

#include "schedules/error.hpp"
#include "schedules/policy/versions.hpp"
#include "schedules/simulate/steady_step.hpp"

namespace minipipe::schedules {
namespace {

class AsynchronousTuner {
 public:
  explicit AsynchronousTuner(const AsynchronousRequest& request) : request_(request), sums_(request.profile) {}

  AsynchronousPlan at(std::int64_t window) {
    const std::vector<int> shortest = min_max_partition(request_.profile, request_.devices);
    // No partition has a shorter longest stage, and no steady state is faster than its longest stage.
    double pace = 0;
    for (const LayerCosts& stage : sums_.stages(shortest)) pace = std::max(pace, stage.time());
    pace += request_.update / static_cast<double>(window);
    AsynchronousPlan plan = measured(shortest, window);
    for (bool improved = true; improved;) {
      improved = false;
      for (std::size_t s = 0; s + 1 < plan.partition.size(); ++s) {
        for (const int step : {-1, 1}) {
          if (plan.time_per_microbatch <= pace * (1 + 1e-9) || over()) return plan;
          std::vector<int> partition = plan.partition;
          partition[s] += step;
          partition[s + 1] -= step;
          if (partition[s] < 1 || partition[s + 1] < 1) continue;
          const AsynchronousPlan other = measured(partition, window);
          if (other.time_per_microbatch >= plan.time_per_microbatch * (1 - 1e-9)) continue;
          plan = other;
          improved = true;
        }
      }
    }
    return plan;
  }

  bool over() const {
    return (request_.evaluations > 0 && evaluations_ >= request_.evaluations) || (request_.stop && request_.stop());
  }

 private:
  AsynchronousPlan measured(const std::vector<int>& partition, std::int64_t window) {
    ++evaluations_;
    ScheduleOptions options = request_.options;
    options.name = "paci";
    options.stages = request_.devices;
    options.window = window;
    options.synchronous_updates = 0;
    Costs costs;
    for (const LayerCosts& stage : sums_.stages(partition)) {
      costs.forward.push_back(stage.forward);
      costs.backward_input.push_back(stage.backward_input);
      costs.backward_weight.push_back(stage.backward_weight);
      costs.update.push_back(request_.update);
    }
    costs.latency = request_.profile.link;
    // Long enough to be full for several windows.
    const std::int64_t updates = 4 + 8 * ((request_.devices + window - 1) / window);
    const TwoLengths runs = simulate_two_lengths(options, costs, updates, updates);
    AsynchronousPlan plan{partition, window, 0, 0, 0};
    plan.time_per_microbatch = runs.elapsed / static_cast<double>(updates * window);
    plan.gap_max = *std::max_element(runs.many.gap_max.begin(), runs.many.gap_max.end());
    plan.gap_mean = runs.many.gap_mean.front();
    return plan;
  }

  const AsynchronousRequest& request_;
  CostSums sums_;
  std::int64_t evaluations_ = 0;
};

}  // namespace

AsynchronousResult tune_asynchronous(const AsynchronousRequest& request) {
  validate(request.profile);
  if (request.devices < 1) throw InputError("tune: the number of devices must be 1 or more");
  if (request.devices > request.profile.size()) {
    throw InputError("tune: " + std::to_string(request.devices) + " devices are more than the " +
                     std::to_string(request.profile.size()) + " layers of the model; use fewer devices");
  }
  AsynchronousTuner tuner(request);
  AsynchronousResult result;
  double work = request.profile.embedding.time() + request.profile.head.time();
  for (const LayerCosts& layer : request.profile.layers) work += layer.time();
  result.lower_bound = work / request.devices;
  const auto keeps = [&](const AsynchronousPlan& plan) { return plan.gap_max <= request.most_gap; };
  bool kept = false;
  for (std::int64_t window = 1; window <= 4 * request.devices && !(kept && tuner.over()); window *= 2) {
    result.windows.push_back(tuner.at(window));
    kept = kept || keeps(result.windows.back());
  }
  double fastest = std::numeric_limits<double>::infinity();
  for (const AsynchronousPlan& plan : result.windows) {
    if (keeps(plan)) fastest = std::min(fastest, plan.time_per_microbatch);
  }
  const auto chosen = std::find_if(result.windows.begin(), result.windows.end(), [&](const AsynchronousPlan& plan) {
    return keeps(plan) && plan.time_per_microbatch <= 1.01 * fastest;
  });
  if (chosen == result.windows.end()) {
    throw InputError("tune: no window up to " + std::to_string(4 * request.devices) + " keeps the version gap at " +
                     std::to_string(request.most_gap) + " or below; allow a larger gap");
  }
  result.best = *chosen;
  return result;
}

}  // namespace minipipe::schedules
