#include <algorithm>
#include <utility>

#include "schedules/error.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::schedules {
namespace {

class ListPolicy final : public Policy {
 public:
  explicit ListPolicy(ActionList actions) : actions_(std::move(actions)) {
    std::erase_if(actions_, [](const Action& action) { return !is_compute(action.kind) && action.kind != Kind::update; });
  }

  std::optional<Kind> next(const StageState& state) override {
    if (next_ == actions_.size()) return std::nullopt;
    const Action& action = actions_[next_];
    if (!can_start(action, state)) return std::nullopt;
    ++next_;
    return action.kind;
  }

  bool finished(const StageState& state) const override {
    if (next_ == actions_.size()) return true;
    const Action& action = actions_[next_];
    return Policy::finished(state) && action.kind == Kind::forward && action.microbatch >= state.segment_end;
  }

 private:
  bool can_start(const Action& action, const StageState& state) const {
    require(action, action.stage == state.stage, "belongs to another stage than " + std::to_string(state.stage));
    switch (action.kind) {
      case Kind::forward:
        expect(action, state.forwards);
        return state.forwards_left() && state.input_ready;
      case Kind::backward:
        expect(action, state.backwards);
        require(action, state.weights == state.backwards, "an earlier weight gradient is still open");
        require(action, state.in_flight() > 0, "its forward comes later");
        return state.gradient_ready;
      case Kind::backward_input:
        expect(action, state.backwards);
        require(action, state.in_flight() > 0, "its forward comes later");
        return state.gradient_ready;
      case Kind::backward_weight:
        expect(action, state.weights);
        require(action, state.weights < state.backwards, "its input gradient comes later");
        return true;
      default:
        expect(action, state.updates);
        return true;
    }
  }

  void expect(const Action& action, std::int64_t number) const {
    require(action, action.microbatch == number, "the next number of this kind is " + std::to_string(number));
  }

  void require(const Action& action, bool condition, const std::string& reason) const {
    if (condition) return;
    throw RunError("action list: cell " + std::to_string(next_) + " (" + to_text(action) +
                   ", counted without sends and drains): " + reason + "; run the checker on the plan or log");
  }

  ActionList actions_;
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_list_policy(ActionList actions) { return std::make_unique<ListPolicy>(std::move(actions)); }

}  // namespace minipipe::schedules
