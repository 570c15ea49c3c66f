#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "schedules/policy/policy.hpp"

namespace minipipe::schedules {

// Base of the policies that make an update after every `window` backwards.
class WindowedPolicy : public Policy {
 public:
  explicit WindowedPolicy(std::int64_t window) : window_(window) {}

  bool finished(const StageState& state) const override { return Policy::finished(state) && !update_due(state, window_); }

 protected:
  std::int64_t window() const { return window_; }

  // No forward of a synchronous step at or beyond this microbatch. The segment's end may be lowered while a stage waits, so it
  // is read from the state every time.
  std::int64_t step_end(const StageState& state) const { return std::min(state.segment_end, (state.updates + 1) * window_); }

 private:
  std::int64_t window_;
};

// Forwards until `cap` microbatches are in flight, then a backward, and so on in strict turns; backwards alone once no forward
// below `end` is left. The order does not depend on when messages arrive.
inline std::optional<Kind> strict_turns(const StageState& state, std::int64_t cap, std::int64_t end) {
  if (state.forwards < end && state.in_flight() < cap) {
    return state.input_ready ? std::optional(Kind::forward) : std::nullopt;
  }
  if (state.in_flight() > 0 && state.gradient_ready) return Kind::backward;
  return std::nullopt;
}

std::unique_ptr<Policy> make_gpipe(const ScheduleOptions& options, int stage);
std::unique_ptr<Policy> make_one_forward_one_backward(const ScheduleOptions& options, int stage);
std::unique_ptr<Policy> make_asynchronous(const ScheduleOptions& options, int stage);

}  // namespace minipipe::schedules
