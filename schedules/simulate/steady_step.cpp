#include "schedules/simulate/steady_step.hpp"

#include <algorithm>
#include <numeric>

namespace minipipe::schedules {

double ring_all_reduce(double bytes, int replicas, double bytes_per_time, double latency) {
  const double messages = 2.0 * (replicas - 1);
  return messages * (latency + (bytes_per_time > 0 ? bytes / replicas / bytes_per_time : 0));
}

TwoLengths simulate_two_lengths(const ScheduleOptions& options, const Costs& costs, std::int64_t fewer, std::int64_t more) {
  const std::int64_t window = effective_window(options);
  TwoLengths runs{simulate(options, costs, fewer * window), simulate(options, costs, (fewer + more) * window), 0};
  runs.elapsed = runs.many.makespan - runs.few.makespan;
  return runs;
}

SteadyStep steady_step(const ScheduleOptions& options, const Costs& costs, const std::string& remedy) {
  validate(options);
  const std::int64_t window = effective_window(options);
  // Flush schedules repeat themselves from the first updates on, the others at the earliest when the pipe is full.
  const bool asynchronous = is_asynchronous(options.name);
  const std::int64_t fill = asynchronous ? (options.stages + window - 1) / window : 0;
  const std::int64_t wanted = asynchronous ? 16 + 8 * fill : 2;
  constexpr std::int64_t enough_passes = 3000000;
  const std::int64_t affordable = enough_passes / window / options.stages / 3;
  const std::int64_t more = std::max({std::min(wanted, affordable), fill, std::int64_t{1}});
  const std::int64_t shorter = options.synchronous_updates + std::max(more, fill + 1);
  require_simulable(options, 2 * shorter + more, remedy);
  const auto [few, many, elapsed] = simulate_two_lengths(options, costs, shorter, more);
  SteadyStep step;
  step.time = elapsed / static_cast<double>(more);
  const auto sum = [](const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
  const double busy = sum(many.busy) - sum(few.busy);
  const double ranks_time = static_cast<double>(many.busy.size()) * elapsed;
  if (ranks_time > 0) {
    // Which actions fall into the difference may vary by a few at its ends.
    step.busy_share = std::min(1.0, busy / ranks_time);
    step.pass_share = std::min(1.0, (busy - static_cast<double>(more) * sum(costs.update)) / ranks_time);
  }
  step.peak_in_flight = many.peak_in_flight;
  step.gap_max = *std::max_element(many.gap_max.begin(), many.gap_max.end());
  for (const SimulationResult* result : {&few, &many}) {
    for (const ActionLog& log : result->log.ranks) step.actions += static_cast<std::int64_t>(log.size());
  }
  return step;
}

}  // namespace minipipe::schedules
