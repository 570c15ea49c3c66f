#include "schedules/policy/windowed.hpp"

namespace minipipe::schedules {
namespace {

// PipeDream-Flush (arXiv 2006.09503): N-i warm-up forwards, then one forward and one backward in turns, an update when the step
// has drained.
class OneForwardOneBackward final : public WindowedPolicy {
 public:
  OneForwardOneBackward(std::int64_t window, std::int64_t cap) : WindowedPolicy(window), cap_(cap) {}

  std::optional<Kind> next(const StageState& state) override {
    if (update_due(state, window())) return Kind::update;
    return strict_turns(state, cap_, step_end(state));
  }

 private:
  std::int64_t cap_;
};

}  // namespace

std::unique_ptr<Policy> make_one_forward_one_backward(const ScheduleOptions& options, int stage) {
  return std::make_unique<OneForwardOneBackward>(options.window, activation_slots(options, stage));
}

}  // namespace minipipe::schedules
