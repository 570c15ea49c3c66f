#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "core/train/stop_rule.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::core {

// The policy of a first stage that goes on only as far as the stop rule admits: beyond, its input is not there.
class GatedPolicy : public schedules::Policy {
 public:
  GatedPolicy(std::unique_ptr<schedules::Policy> policy, const StopRule& rule) : policy_(std::move(policy)), rule_(rule) {}

  std::optional<schedules::Kind> next(const schedules::StageState& state) override {
    schedules::StageState seen = state;
    seen.input_ready = state.input_ready && state.forwards < rule_.admitted();
    return policy_->next(seen);
  }
  bool finished(const schedules::StageState& state) const override { return policy_->finished(state); }
  bool keeps_activations() const override { return policy_->keeps_activations(); }

 private:
  std::unique_ptr<schedules::Policy> policy_;
  const StopRule& rule_;
};

}  // namespace minipipe::core
