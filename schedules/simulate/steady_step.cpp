#include "schedules/simulate/steady_step.hpp"

#include <algorithm>
#include <numeric>

namespace minipipe::schedules {

double ring_all_reduce(double bytes, int replicas, double bytes_per_time, double latency) {
  const double messages = 2.0 * (replicas - 1);
  return messages * (latency + (bytes_per_time > 0 ? bytes / replicas / bytes_per_time : 0));
}

SteadyStep steady_step(const ScheduleOptions& options, const Costs& costs) {
  validate(options);
  const std::int64_t window = effective_window(options);
  // Flush schedules repeat themselves from the first update on, the others when the pipe is full.
  const std::int64_t fill = is_asynchronous(options.name) ? (options.stages + window - 1) / window : 0;
  const std::int64_t shorter = 1 + options.synchronous_updates + fill;
  const std::int64_t more = std::max<std::int64_t>(1, fill);
  require_simulable(options, 2 * shorter + more, "lower --devices, --chunks or --microbatches");
  const SimulationResult few = simulate(options, costs, shorter * window);
  const SimulationResult many = simulate(options, costs, (shorter + more) * window);
  SteadyStep step;
  const double elapsed = many.makespan - few.makespan;
  step.time = elapsed / static_cast<double>(more);
  const auto sum = [](const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
  const double busy = sum(many.busy) - sum(few.busy);
  const double ranks_time = static_cast<double>(many.busy.size()) * elapsed;
  if (ranks_time > 0) {
    step.busy_share = busy / ranks_time;
    step.pass_share = (busy - static_cast<double>(more) * sum(costs.update)) / ranks_time;
  }
  step.peak_in_flight = many.peak_in_flight;
  step.gap_max = *std::max_element(many.gap_max.begin(), many.gap_max.end());
  for (const SimulationResult* result : {&few, &many}) {
    for (const ActionLog& log : result->log.ranks) step.actions += static_cast<std::int64_t>(log.size());
  }
  return step;
}

}  // namespace minipipe::schedules
