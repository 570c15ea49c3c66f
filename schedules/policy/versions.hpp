#pragma once

#include <cstdint>
#include <string>

#include "schedules/plan/action.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// Which weights a pass uses. Versions are counted in updates of the stage.
enum class WeightRule {
  current,          // the newest
  stashed,          // forward: the newest; backward: those of its forward (PipeDream, arXiv 1806.03377)
  double_buffered,  // both passes: the newest version of the window before (PipeDream-2BW, arXiv 2006.09503)
  corrected,        // the newest, moved back along a velocity in the backward (PipeMare, arXiv 1910.05124)
};

WeightRule weight_rule(const std::string& name);

// Versions of the weights a stage keeps: pipedream N-i+1, pipedream-2bw 2, else 1 (PipeMare's velocity is not a version).
std::int64_t weight_copies(const ScheduleOptions& options, int stage);

// The version a pass of `microbatch` (over the whole run) uses, when the stage has made `version_now` updates and the forward
// of the microbatch used `forward_version` (looked at for backwards only). Under double buffering microbatch k, counted from 1,
// uses max(floor((k-1)/m) - 1, 0), drains or not; after K synchronous updates the rule begins anew with version K.
std::int64_t version_used(const ScheduleOptions& options, int stage, Kind kind, std::int64_t microbatch,
                          std::int64_t version_now, std::int64_t forward_version);

// Largest difference of the versions used by a microbatch's backward and forward on a stage.
// Flush schedules, pipedream and pipedream-2bw: 0. PACI: ceil((N-i+extra)/a) (arXiv 2606.07881, eq. 2, 10, 11); pipemare: the
// same without extra; async-1f1b: N-i.
std::int64_t version_gap_bound(const ScheduleOptions& options, int stage);

// Mean of that gap in the steady state: (N-i+extra)/a for PACI.
double version_gap_mean(const ScheduleOptions& options, int stage);

// Most updates between the version a microbatch's forward used and the version its gradient is applied to.
// Flush schedules: 0; pipedream: N-i; pipedream-2bw: 1 (exactly 1 but for the first window, there 0); else the gap's bound.
std::int64_t gradient_delay_bound(const ScheduleOptions& options, int stage);

}  // namespace minipipe::schedules
