#pragma once

#include <cstdint>

namespace minipipe::schedules {

// Closed forms for N equal stages, with messages that take no time unless said.

// Share of the time a stage computes under a flush schedule with m microbatches per update: m / (m + N - 1).
double flush_efficiency(int stages, std::int64_t microbatches);

// The same for PACI between two drains that are M microbatches apart: 1 / (1 + (N - 1) / M). It tends to 1.
double paci_run_efficiency(int stages, std::int64_t microbatches);

// The same for PACI in the steady state when a message between neighbours takes `latency` seconds that nothing hides:
// 1 / (1 + 2 (N - 1) latency / (N (forward + backward))), since N microbatches are on their way down and back at one time.
double paci_latency_efficiency(int stages, double forward, double backward, double latency);

// How much faster PACI is than a flush schedule with m microbatches per update: (m + N - 1) / m (arXiv 2606.07881).
double bubble_speed_up(int stages, std::int64_t microbatches);

}  // namespace minipipe::schedules
