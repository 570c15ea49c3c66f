#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "schedules/graph/update_graph.hpp"

namespace minipipe::schedules {

// Partition, placement and order of one update, with the simulated makespan (in the profile's unit of time).
struct TunedPlan {
  std::string name;            // of a baseline, or of the phase that found it
  std::vector<int> partition;  // layers per stage
  Placement placement;
  Plan order;  // computations only
  double makespan = std::numeric_limits<double>::infinity();
};

struct TuneProgress {
  std::int64_t evaluations = 0;
  std::string phase;
  double makespan = 0;
  double lower_bound = 0;
};

struct TuneRequest {
  CostProfile profile;  // in ticks for whole numbers
  int devices = 1;
  int microbatches = 1;
  double cap =
      std::numeric_limits<double>::infinity();  // units of layer x microbatch held by a device (graph/update_graph.hpp)
  std::uint64_t seed = 1;
  std::int64_t evaluations = 0;                                 // 0: until `stop` says so
  int most_stages = 0;                                          // 0: eight per device
  std::optional<TunedPlan> start;                               // improve this plan; without it, begin from all kinds of plans
  std::function<bool()> stop = nullptr;                         // asked often; true ends the search with the best so far
  std::function<void(const TuneProgress&)> progress = nullptr;  // called when a better plan is found

  bool stopped() const { return stop && stop(); }
  bool large() const { return std::int64_t{profile.size()} * microbatches > 100000; }  // an evaluation takes milliseconds
  int stage_limit() const { return most_stages > 0 ? most_stages : 8 * devices; }
};

// Idle time as the phases look at it (arXiv 2509.23722v3): per device the time outside its first start and last end, and the
// gaps between.
struct BubbleDiagnosis {
  double boundary = 0;  // summed over devices
  double residual = 0;
  double spread = 0;  // largest minus smallest total of a device
};
BubbleDiagnosis diagnose(const GraphResult& result);

enum class Phase { partition, placement, schedule };

// All phases, the most promising first. Uneven devices: partition; idle ends: placement; gaps: schedule. The others follow, so
// that a phase without improvement never ends the search (equal devices have no spread whatever the order is).
std::vector<Phase> phase_order(const BubbleDiagnosis& diagnosis, double smallest_layer);

// Plans that vary one thing at a time, by name: 1f1b (uniform partition, one stage per device), interleaved (best number of
// chunks), zero-bubble (best of H1, H2, V and the searched one), partition-only (smallest longest stage under 1f1b),
// placement-only (uniform stages, their number and places searched, whole backwards), schedule-only (uniform partition, one
// stage per device, order searched). Those that cannot be run, hold more than the
// cap or need more stages than most_stages are left out, and all that would come
// after `stop` but 1f1b. The searches have budgets of their own; that of the request limits them in large cases.
std::vector<TunedPlan> baselines(const TuneRequest& request);

struct TuneResult {
  TunedPlan best;
  std::vector<TunedPlan> baselines;
  double lower_bound = 0;
  std::int64_t evaluations = 0;
};

// Searches partition, placement and order together. Starts from the baselines and from list-scheduled plans of every number of
// stages (under a cap, also from the most even split of memory), or from the plan that is given; goes on by simulated annealing
// over structures (evaluated by the list scheduler) and over the order and the borders of one structure (evaluated by the
// graph). The result depends on the request and the number of evaluations only, not on time. InputError if the cap is too small
// for any plan (by how much, and which stage), if there are more devices than layers, or if the plan to start from is not one
// of these layers, devices and microbatches or holds more than the cap.
TuneResult tune(const TuneRequest& request);

}  // namespace minipipe::schedules
