#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/simulate/simulator.hpp"

namespace minipipe::schedules {

// A ring all-reduce of `bytes` over `replicas`: each sends and receives 2 messages of bytes / R, one after the other
// (Patarasuk and Yuan 2009). In the unit of time of `latency`; bytes_per_time 0: no limit. 0 with one replica.
double ring_all_reduce(double bytes, int replicas, double bytes_per_time, double latency);

// The schedule simulated for `fewer` updates and for `more` beyond these: the difference of the two leaves fill and drain out.
struct TwoLengths {
  SimulationResult few, many;
  double elapsed = 0;  // of the `more` updates
};
TwoLengths simulate_two_lengths(const ScheduleOptions& options, const Costs& costs, std::int64_t fewer, std::int64_t more);

// One optimizer update out of many, in the unit of time of the costs.
struct SteadyStep {
  double time = 0;                           // per update: the difference of two runs leaves fill and drain out
  double busy_share = 0;                     // of the ranks' time: passes and updates
  double pass_share = 0;                     // of the ranks' time: passes alone
  std::vector<std::int64_t> peak_in_flight;  // by stage
  std::int64_t gap_max = 0;
  std::int64_t actions = 0;  // simulated in all
};

// Simulates the schedule twice, the second time for more updates: under an asynchronous schedule for many more, because unequal
// stages take long to settle after the pipe is full, but not beyond a few million passes. A replica's exchange of gradients
// belongs into costs.update: it then starts when the stage's own last weight gradient is done, holds up this stage only, and
// overlaps with what other stages compute. Replicas are alike, so one of them stands for all. InputError, which `remedy` ends,
// for a schedule of more than most_simulated_passes in the fewest updates that will do.
SteadyStep steady_step(const ScheduleOptions& options, const Costs& costs,
                       const std::string& remedy = "lower --devices, --chunks or --microbatches");

}  // namespace minipipe::schedules
