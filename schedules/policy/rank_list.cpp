#include "schedules/policy/rank_list.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "schedules/error.hpp"
#include "schedules/generate/planned_update.hpp"

namespace minipipe::schedules {
namespace {

// Where a rank is in its list.
class Cursor {
 public:
  // window: 0: the list ends; else it is the list of one update, and is repeated.
  Cursor(ActionList actions, std::int64_t window) : actions_(std::move(actions)), window_(window) {
    std::erase_if(actions_, [](const Action& action) { return !is_compute(action.kind) && action.kind != Kind::update; });
    based_ = window_ == 0;
  }

  const ActionList& actions() const { return actions_; }
  std::size_t position() const { return next_; }
  bool exhausted() const { return actions_.empty() || (window_ == 0 && next_ == actions_.size()); }

  // Repeated lists begin where the stages stand.
  void base_on(const StageState& state) {
    if (std::exchange(based_, true)) return;
    microbatches_ = state.forwards;
    updates_ = state.updates;
  }

  Action head() const {
    Action action = actions_[next_];
    action.microbatch += action.kind == Kind::update ? updates_ : microbatches_;
    return action;
  }

  void advance() {
    if (++next_ < actions_.size() || window_ == 0) return;
    next_ = 0;
    microbatches_ += window_;
    ++updates_;
  }

 private:
  ActionList actions_;
  std::int64_t window_;
  std::size_t next_ = 0;
  bool based_ = false;
  std::int64_t microbatches_ = 0, updates_ = 0;
};

class ListPolicy final : public Policy {
 public:
  // alone: the list is this stage's only, others in it are a mistake.
  ListPolicy(std::shared_ptr<Cursor> cursor, bool alone) : cursor_(std::move(cursor)), alone_(alone) {}

  std::optional<Kind> next(const StageState& state) override {
    cursor_->base_on(state);
    if (alone_) skip_beyond_segment(state);
    if (cursor_->exhausted()) return std::nullopt;
    const Action action = cursor_->head();
    if ((action.stage != state.stage && !alone_) || goes_on_beyond(action, state)) return std::nullopt;
    if (!can_start(action, state)) return std::nullopt;
    cursor_->advance();
    return action.kind;
  }

  bool finished(const StageState& state) const override {
    if (cursor_->exhausted()) return true;
    cursor_->base_on(state);
    return goes_on_beyond(cursor_->head(), state);
  }

 private:
  // The segment is done, and what comes next belongs to another.
  bool goes_on_beyond(const Action& next, const StageState& state) const {
    return Policy::finished(state) && is_compute(next.kind) && next.microbatch >= state.segment_end;
  }

  // A segment whose end was lowered drains where the list, which may have been recorded without a drain there, goes on with
  // forwards before the backwards that are left.
  void skip_beyond_segment(const StageState& state) {
    while (!cursor_->exhausted() && !Policy::finished(state)) {
      const Action action = cursor_->head();
      if (action.kind != Kind::forward || action.microbatch < state.segment_end) return;
      cursor_->advance();
    }
  }

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
    throw RunError("action list: cell " + std::to_string(cursor_->position() + 1) + " (" + to_text(action) +
                   ", counted from 1 without sends and drains): " + reason + "; run the checker on the plan or log");
  }

  std::shared_ptr<Cursor> cursor_;
  bool alone_;
};

std::map<int, std::unique_ptr<Policy>> share(ActionList list, std::int64_t window) {
  const auto cursor = std::make_shared<Cursor>(std::move(list), window);
  std::set<int> stages;
  for (const Action& action : cursor->actions()) stages.insert(action.stage);
  std::map<int, std::unique_ptr<Policy>> policies;
  for (const int stage : stages) policies[stage] = std::make_unique<ListPolicy>(cursor, false);
  return policies;
}

}  // namespace

std::unique_ptr<Policy> make_list_policy(ActionList actions) {
  return std::make_unique<ListPolicy>(std::make_shared<Cursor>(std::move(actions), 0), true);
}

std::map<int, std::unique_ptr<Policy>> make_rank_list_policies(ActionList rank_list) { return share(std::move(rank_list), 0); }

std::map<int, std::unique_ptr<Policy>> make_rank_policies(const ScheduleOptions& options, const Placement& placement,
                                                          int rank) {
  std::map<int, std::unique_ptr<Policy>> policies;
  if (is_planned(options.name)) {
    if (placement != placement_for(options, placement.ranks)) {
      throw InputError("schedule: " + options.name + " places stages by its own rule; ask placement_for");
    }
    return share(planned_update(options)->plan.ranks.at(static_cast<std::size_t>(rank)), options.window);
  }
  for (const int stage : placement.stages_of(rank)) policies[stage] = make_policy(options, stage);
  return policies;
}

}  // namespace minipipe::schedules
