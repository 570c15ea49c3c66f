#pragma once

#include <cstdint>
#include <vector>

#include "core/profile/profile.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::core {

// Seconds of every action of the deck's schedule on so many stages, from the mean over the ranks of the profile. The handling
// of a message by its ends counts as their work; only its transfer is latency. Between stages of one rank a message is a copy.
// Of a replica that holds or updates a part: blocks' passes in the proportion of their products' flops, updates in that of
// parameters, of the replica that has most to do.
// An update begins with the exchange among replicas.
schedules::Costs profiled_costs(const Profile& profile, const Deck& deck, int stages);

// Seconds per update that a stage needs to send its part of the exchange to the other replicas, one message after the other
// over a link as the profile has measured it between stages: bytes / bandwidth, and 2 (R - 1) latencies for the sums and their
// results. By stage; part of `update` in profiled_costs, as if no pass hid any of it. A bandwidth of 0 (the size of a message
// made no difference) is no limit. Zeros with one replica, and where the profile, measured on one rank, knows of no link.
std::vector<double> exchange_seconds(const Profile& profile, const Deck& deck, int stages);

// What a long run of the deck does per update, once the pipe is in its steady state and the schedule's own rule holds.
struct SteadyPrediction {
  double step_time = 0;
  double tokens_per_s = 0;
  double bubble_share = 0;  // of the time of all ranks
};
SteadyPrediction predict_steady(const Deck& deck, int stages, const schedules::Costs& costs);

// Bytes each rank of the schedule allocates.
std::vector<std::uint64_t> planned_peak_bytes(const Deck& deck, int stages);

}  // namespace minipipe::core
