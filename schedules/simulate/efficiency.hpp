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

// Interleaved 1F1B with v stages per rank, m a multiple of the ranks N: m v / (m v + N - 1) (arXiv 2104.04473).
double interleaved_efficiency(int ranks, std::int64_t microbatches, int chunks);

// Idle seconds of a stage per update of the zero-bubble schedules, m large enough to fill the pipe (arXiv 2401.10241):
// H1 (N-1)(F + I - W), H2 (N-1)(F + I - 2W), ZB-V 0 at equal times.
double zb_h1_bubble(int stages, double forward, double backward_input, double backward_weight);
double zb_h2_bubble(int stages, double forward, double backward_input, double backward_weight);
double zb_v_bubble();

// Share of the time a stage computes: m (F+I+W) / (m (F+I+W) + bubble).
double efficiency_with_bubble(std::int64_t microbatches, double microbatch_seconds, double bubble);

}  // namespace minipipe::schedules
