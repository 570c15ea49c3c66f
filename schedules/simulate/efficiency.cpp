#include "schedules/simulate/efficiency.hpp"

namespace minipipe::schedules {

double flush_efficiency(int stages, std::int64_t microbatches) {
  const auto m = static_cast<double>(microbatches);
  return m / (m + stages - 1);
}

double paci_run_efficiency(int stages, std::int64_t microbatches) {
  return 1 / (1 + (stages - 1) / static_cast<double>(microbatches));
}

double paci_latency_efficiency(int stages, double forward, double backward, double latency) {
  return 1 / (1 + 2 * (stages - 1) * latency / (stages * (forward + backward)));
}

double bubble_speed_up(int stages, std::int64_t microbatches) { return 1 / flush_efficiency(stages, microbatches); }

}  // namespace minipipe::schedules
