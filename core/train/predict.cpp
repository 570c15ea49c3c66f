#include "core/train/predict.hpp"

#include <algorithm>
#include <limits>

namespace minipipe::core {

using schedules::Kind;

namespace {
double mean_seconds(const schedules::ActionLog& actions, Kind kind) {
  double sum = 0;
  double count = 0;
  for (const auto& entry : actions) {
    if (entry.action.kind != kind) continue;
    sum += entry.end_s - entry.start_s;
    count += 1;
  }
  return count > 0 ? sum / count : 0;
}
}  // namespace

schedules::Log predict(const schedules::Log& measured, const schedules::ScheduleOptions& options,
                       const schedules::Costs& links) {
  schedules::Costs costs;
  std::vector<schedules::ActionLog> stages(static_cast<std::size_t>(options.stages));
  double begin = std::numeric_limits<double>::max();
  std::int64_t first_microbatch = std::numeric_limits<std::int64_t>::max();
  std::int64_t first_update = std::numeric_limits<std::int64_t>::max();
  for (const auto& rank : measured.ranks) {
    for (const auto& entry : rank) {
      stages[entry.action.stage].push_back(entry);
      begin = std::min(begin, entry.start_s);
      if (entry.action.kind == Kind::forward) first_microbatch = std::min(first_microbatch, entry.action.microbatch);
      if (entry.action.kind == Kind::update) first_update = std::min(first_update, entry.action.microbatch);
    }
  }
  const std::int64_t microbatches =
      std::count_if(stages[0].begin(), stages[0].end(), [](const auto& e) { return e.action.kind == Kind::forward; });
  for (const auto& actions : stages) {
    costs.forward.push_back(mean_seconds(actions, Kind::forward));
    const double backward = mean_seconds(actions, Kind::backward);
    costs.backward_input.push_back(mean_seconds(actions, Kind::backward_input) + 0.5 * backward);
    costs.backward_weight.push_back(mean_seconds(actions, Kind::backward_weight) + 0.5 * backward);
    costs.update.push_back(mean_seconds(actions, Kind::update));
  }
  costs.latency = links.latency;
  costs.latencies = links.latencies;
  if (microbatches == 0) return {};
  schedules::ScheduleOptions part = options;
  part.synchronous_updates = std::max<std::int64_t>(0, options.synchronous_updates - first_update);
  auto result = schedules::simulate(part, costs, microbatches);
  for (auto& actions : result.log.ranks) {
    for (auto& entry : actions) {
      entry.start_s += begin;
      entry.end_s += begin;
      entry.version += first_update;
      entry.action.microbatch += entry.action.kind == Kind::update ? first_update : first_microbatch;
    }
  }
  return result.log;
}

}  // namespace minipipe::core
