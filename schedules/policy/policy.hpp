#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"
#include "schedules/policy/stage_state.hpp"
#include "schedules/policy/versions.hpp"

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

// The policy of one stage (0-based). Throws InputError for an unknown name or options out of range, and where a rank holds
// several stages in one common order: those are made together by make_rank_policies (policy/rank_list.hpp).
std::unique_ptr<Policy> make_policy(const ScheduleOptions& options, int stage);

// A policy that performs a given order (a plan file or a recorded log): compute actions and updates of one stage; sends,
// receives and drains in the list are skipped, as are forwards beyond a segment's end that stand before its last backward.
// Finished when the list is exhausted, or when everything below the segment's end is done and the list goes on beyond it.
// `next` throws RunError if the list asks for an action out of ascending microbatch order.
std::unique_ptr<Policy> make_list_policy(ActionList actions);

// Forwards only, as fast as inputs arrive: evaluation.
std::unique_ptr<Policy> make_forward_only_policy();

// True if the policy wants update number `updates` now: all weight gradients of the window are in.
inline bool update_due(const StageState& state, std::int64_t window) {
  return state.weights == state.backwards && state.weights >= (state.updates + 1) * window;
}

}  // namespace minipipe::schedules
