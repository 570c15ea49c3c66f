#include "schedules/policy/policy.hpp"

namespace minipipe::schedules {
namespace {

class ForwardOnly final : public Policy {
 public:
  std::optional<Kind> next(const StageState& state) override {
    return state.forwards_left() && state.input_ready ? std::optional(Kind::forward) : std::nullopt;
  }
  bool finished(const StageState& state) const override { return !state.forwards_left(); }
  bool keeps_activations() const override { return false; }
};

}  // namespace

std::unique_ptr<Policy> make_forward_only_policy() { return std::make_unique<ForwardOnly>(); }

}  // namespace minipipe::schedules
