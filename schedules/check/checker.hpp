#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/check/gaps.hpp"
#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::schedules {

// Which part of a run a plan or a log covers.
struct CheckRange {
  std::int64_t first_microbatch = 0;  // not 0 for a resumed run
  std::int64_t microbatches = 0;      // on every stage; a multiple of the window
  std::int64_t first_update = 0;
  // One stage per rank; with replicas, the k-th rank of a stage is in pipeline k. Empty: `placement`, or if that is empty too:
  // rank r is stage r where there are as many ranks as stages, else placement_for(options, ranks).
  std::vector<int> stage_of_rank = {};
  Placement placement = {};                         // several stages per rank
  std::vector<std::int64_t> activation_slots = {};  // by stage; empty: those of the schedule
};

// Ranks and microbatches are counted from 0, cells from 1 (place_text in plan/plan.hpp).
struct CheckReport {
  std::vector<std::string> problems;  // each names rank, cell, text of the cell, in this order; empty: the plan is legal
  std::vector<ListMeasures> ranks;    // measured for each rank, legal or not
  bool ok() const { return problems.empty(); }
};

// Proves that a plan is legal under a schedule: on every rank each forward has exactly one backward (whole, or input gradient
// then weight gradient), all in ascending order and after their forward; an update comes after exactly `window` backwards; at
// most activation_slots microbatches are in flight; the weight versions used by forward and backward differ by at most
// version_gap_bound, and a gradient is at most gradient_delay_bound updates old; drains are empty; nothing is left over. Over
// all ranks: the order can be executed without deadlock, and sends and receives, where listed, agree on every edge. Throws
// InputError only for options or ranges that make no sense.
CheckReport check(const Plan& plan, const ScheduleOptions& options, const CheckRange& range);

// The same for an execution log, whose versions and times are checked too.
CheckReport check(const Log& log, const ScheduleOptions& options, const CheckRange& range);

}  // namespace minipipe::schedules
