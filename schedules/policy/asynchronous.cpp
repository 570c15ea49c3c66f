#include "schedules/policy/windowed.hpp"

namespace minipipe::schedules {
namespace {

// The asynchronous schedules: a stage admits a forward while fewer than N+1-i microbatches are in flight, does a backward
// whenever the gradient is there, and updates after every window of backwards, without waiting for any other stage. On the last
// stage the limit is one, so that each forward is followed by its own backward. They differ in the window and in the weights
// that a pass uses (policy/versions.hpp). PACI (arXiv 2606.07881) and PipeMare (arXiv 1910.05124) may order what is ready
// dynamically; PipeDream (arXiv 1806.03377), its 2BW variant and the plain asynchronous 1F1B take strict turns.
class Asynchronous final : public WindowedPolicy {
 public:
  Asynchronous(const ScheduleOptions& options, int stage)
      : WindowedPolicy(effective_window(options)),
        cap_(activation_slots(options, stage)),
        synchronous_cap_(std::min<std::int64_t>(options.stages - stage, window())),
        synchronous_updates_(options.synchronous_updates),
        order_(options.name == "paci" || options.name == "pipemare" ? options.order : Order::fixed),
        ready_(options.ready) {}

  std::optional<Kind> next(const StageState& state) override {
    if (update_due(state, window())) return Kind::update;
    if (state.updates < synchronous_updates_) return strict_turns(state, synchronous_cap_, step_end(state));
    if (order_ == Order::fixed) return strict_turns(state, cap_, state.segment_end);
    return next_dynamic(state);
  }

 private:
  std::optional<Kind> next_dynamic(const StageState& state) {
    const bool forward = state.forwards_left() && state.in_flight() < cap_ && state.input_ready;
    const bool backward = state.in_flight() > 0 && state.gradient_ready;
    if (!forward && !backward) return std::nullopt;
    const bool backward_wins = ready_ == Ready::backward_first || last_ == Kind::forward;
    last_ = backward && (backward_wins || !forward) ? Kind::backward : Kind::forward;
    return last_;
  }

  std::int64_t cap_;
  std::int64_t synchronous_cap_;
  std::int64_t synchronous_updates_;
  Order order_;
  Ready ready_;
  Kind last_ = Kind::backward;
};

}  // namespace

std::unique_ptr<Policy> make_asynchronous(const ScheduleOptions& options, int stage) {
  return std::make_unique<Asynchronous>(options, stage);
}

}  // namespace minipipe::schedules
