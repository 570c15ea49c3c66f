#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedules/plan/plan.hpp"
#include "schedules/policy/stage_state.hpp"

namespace minipipe::schedules {

// Decides what one stage does next, from local knowledge only.
class Policy {
 public:
  virtual ~Policy() = default;

  // The next action, or nothing if the stage has to wait (for an input, for a gradient) or has reached the end of its segment.
  // Only actions that can start now are returned: a forward only if `input_ready`, a backward only if `gradient_ready`.
  // The caller performs the action and counts it in the state before it asks again.
  virtual std::optional<Kind> next(const StageState& state) = 0;

  // True when the segment's work on this stage is done, updates included.
  virtual bool finished(const StageState& state) const {
    return state.forwards == state.segment_end && state.backwards == state.segment_end && state.weights == state.segment_end;
  }

  // False if no backward will ask for the activations of a forward: their slot is free as soon as the forward is done.
  virtual bool keeps_activations() const { return true; }
};

// How a forward and a backward that are both ready are ordered under PACI's dynamic order.
enum class Ready {
  alternate,       // Algorithm 1 of the PACI paper: forward and backward take turns
  backward_first,  // the authors' released code: waiting gradients are drained first
};

enum class Order { dynamic, fixed };

struct ScheduleOptions {
  std::string name = "1f1b";             // gpipe | 1f1b | paci
  int stages = 1;                        // N
  std::int64_t window = 1;               // microbatches per optimizer update: m of flush schedules, a of PACI
  Order order = Order::dynamic;          // PACI only
  Ready ready = Ready::alternate;        // PACI with dynamic order only
  int extra_in_flight = 0;               // PACI only: further forwards admitted on all stages but the last
  std::int64_t synchronous_updates = 0;  // PACI only: the first K updates run as 1f1b
};

// The schedules known by name, in the order they are listed to users.
const std::vector<std::string>& schedule_names();

// True if weights may change between a microbatch's forward and its backward.
bool is_asynchronous(const std::string& name);

// Throws InputError if an option is unknown or out of range. Options that only PACI has are not looked at for other schedules,
// so that one deck can be run under several schedules.
void validate(const ScheduleOptions& options);

// The policy of one stage (0-based). Throws InputError for an unknown name or options out of range.
std::unique_ptr<Policy> make_policy(const ScheduleOptions& options, int stage);

// A policy that performs a given order (a plan file or a recorded log): compute actions and updates of one stage; sends,
// receives and drains in the list are skipped. Finished when the list is exhausted, or when everything below the segment's end
// is done and the list goes on with a forward beyond it.
// `next` throws RunError if the list asks for an action out of ascending microbatch order.
std::unique_ptr<Policy> make_list_policy(ActionList actions);

// Forwards only, as fast as inputs arrive: evaluation.
std::unique_ptr<Policy> make_forward_only_policy();

// Most activations ever alive on a stage: the number of activation slots to allocate.
// gpipe: m; 1f1b: min(N+1-i, m); paci: N+1-i (+ extra_in_flight except on the last stage).
std::int64_t activation_slots(const ScheduleOptions& options, int stage);

// Largest number of updates between a microbatch's forward and its backward on a stage.
// Flush schedules: 0. PACI: ceil((N-i+extra)/a) (arXiv 2606.07881, eq. 2, 10, 11).
std::int64_t version_gap_bound(const ScheduleOptions& options, int stage);

// Mean of that gap in the steady state: (N-i+extra)/a for PACI.
double version_gap_mean(const ScheduleOptions& options, int stage);

// True if the policy wants update number `updates` now: all weight gradients of the window are in.
inline bool update_due(const StageState& state, std::int64_t window) {
  return state.weights == state.backwards && state.weights >= (state.updates + 1) * window;
}

}  // namespace minipipe::schedules
