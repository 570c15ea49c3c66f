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

double interleaved_efficiency(int ranks, std::int64_t microbatches, int chunks) {
  return flush_efficiency(ranks, microbatches * chunks);
}

double zb_h1_bubble(int stages, double forward, double backward_input, double backward_weight) {
  return (stages - 1) * (forward + backward_input - backward_weight);
}

double zb_h2_bubble(int stages, double forward, double backward_input, double backward_weight) {
  return (stages - 1) * (forward + backward_input - 2 * backward_weight);
}

double zb_v_bubble() { return 0; }

double efficiency_with_bubble(std::int64_t microbatches, double microbatch_seconds, double bubble) {
  const double work = static_cast<double>(microbatches) * microbatch_seconds;
  return work / (work + bubble);
}

}  // namespace minipipe::schedules
