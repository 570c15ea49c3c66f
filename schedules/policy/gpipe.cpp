#include "schedules/policy/windowed.hpp"

namespace minipipe::schedules {
namespace {

// All forwards of a step, then all its backwards, then the update (GPipe, arXiv 1811.06965).
class Gpipe final : public WindowedPolicy {
 public:
  using WindowedPolicy::WindowedPolicy;

  std::optional<Kind> next(const StageState& state) override {
    if (update_due(state, window())) return Kind::update;
    return strict_turns(state, window(), step_end(state));
  }
};

}  // namespace

std::unique_ptr<Policy> make_gpipe(const ScheduleOptions& options, int) { return std::make_unique<Gpipe>(options.window); }

}  // namespace minipipe::schedules
