#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/policy/options.hpp"
#include "schedules/tune/profile.hpp"

namespace minipipe::schedules {

// A partition and window for PACI, one stage per device, with what the asynchronous simulator says of them.
struct AsynchronousPlan {
  std::vector<int> partition;
  std::int64_t window = 1;
  double time_per_microbatch = 0;  // in the steady state, in the profile's unit of time
  std::int64_t gap_max = 0;        // most updates between the weights used by a microbatch's forward and backward
  double gap_mean = 0;             // on the first stage
};

struct AsynchronousRequest {
  CostProfile profile;
  int devices = 1;
  double update = 0;                     // time of an optimizer step of a stage, in the profile's unit
  std::int64_t most_gap = 1;             // largest version gap to allow
  ScheduleOptions options = {};          // order, ready, extra_in_flight; name, stages and window are set here
  std::int64_t evaluations = 0;          // partitions to simulate, over all windows; 0: no limit
  std::function<bool()> stop = nullptr;  // asked before each; true ends the search with what was found
};

struct AsynchronousResult {
  AsynchronousPlan best;  // fastest within 1 %, then smallest window, of those that keep the gap
  std::vector<AsynchronousPlan>
      windows;             // one for each window tried: 1, 2, 4, ... up to the first that keeps the gap and beyond
  double lower_bound = 0;  // of the time per microbatch: all work shared evenly
};

// For every window the partition is improved layer by layer, from the one with the smallest longest stage, until no move of a
// layer across one border makes the simulated steady state faster, or none can because the longest stage sets the pace. At the
// end of the budget or of the time, the windows up to the first that keeps the gap are still looked at, with that first
// partition. InputError if there are more devices than layers.
AsynchronousResult tune_asynchronous(const AsynchronousRequest& request);

}  // namespace minipipe::schedules
