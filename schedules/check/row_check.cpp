#include "schedules/check/row_check.hpp"

#include <algorithm>
#include <unordered_map>

#include "schedules/policy/versions.hpp"

namespace minipipe::schedules {
namespace {

std::string text_of(std::int64_t number) { return std::to_string(number); }

class RowCheck {
 public:
  RowCheck(const Plan& plan, const RowRules& rules, std::vector<RowProblem>& problems)
      : plan_(plan),
        actions_(plan.ranks[static_cast<std::size_t>(rules.rank)]),
        rules_(rules),
        problems_(problems),
        forwards_(rules.first_microbatch),
        inputs_(rules.first_microbatch),
        weights_(rules.first_microbatch),
        updates_(rules.first_update) {}

  void run() {
    for (cell_ = 0; cell_ < actions_.size(); ++cell_) visit(actions_[cell_]);
    const std::int64_t end = rules_.first_microbatch + rules_.microbatches;
    at_end("forwards", forwards_, end);
    at_end("backwards (input gradients)", inputs_, end);
    at_end("weight gradients", weights_, end);
    at_end("updates", updates_, rules_.first_update + rules_.microbatches / rules_.window);
  }

 private:
  void visit(const Action& action) {
    if (action.stage != rules_.stage) {
      const auto& known = rules_.stages_on_rank;
      // Named once, by the first stage of the row.
      const bool mine = known.front() == rules_.stage;
      if (mine && !std::binary_search(known.begin(), known.end(), action.stage))
        problem("this rank runs stage " + stages_text());
      return;
    }
    switch (action.kind) {
      case Kind::forward:
        forward(action);
        break;
      case Kind::backward:
        backward_input(action);
        backward_weight(action);
        break;
      case Kind::backward_input:
        backward_input(action);
        break;
      case Kind::backward_weight:
        backward_weight(action);
        break;
      case Kind::update:
        update(action);
        break;
      case Kind::drain:
        if (forwards_ != inputs_ || forwards_ != weights_) problem("microbatches are in flight");
        if (action.microbatch != forwards_) problem(text_of(forwards_) + " microbatches are done");
        break;
      case Kind::receive_activation:
        if (action.microbatch < forwards_) problem("its forward came earlier");
        break;
      case Kind::receive_gradient:
        if (action.microbatch < inputs_) problem("its backward came earlier");
        break;
      case Kind::send_activation:
        if (action.microbatch >= forwards_) problem("its forward comes later");
        break;
      case Kind::send_gradient:
        if (action.microbatch >= inputs_) problem("its backward comes later");
        break;
    }
  }

  std::string stages_text() const {
    std::string text = text_of(rules_.stage);
    for (const int stage : rules_.stages_on_rank) text += stage == rules_.stage ? "" : ", " + text_of(stage);
    return text;
  }

  void forward(const Action& action) {
    in_order(action, forwards_);
    if (++forwards_ - weights_ > rules_.activation_slots) {
      problem(text_of(forwards_ - weights_) + " microbatches in flight, at most " + text_of(rules_.activation_slots) +
              " are allowed on this stage");
    }
    forward_version_[action.microbatch] = used(action, 0);
  }

  void backward_input(const Action& action) {
    in_order(action, inputs_);
    ++inputs_;
    const auto forward = forward_version_.find(action.microbatch);
    if (forward == forward_version_.end()) {
      problem("its forward has not come before");
      return;
    }
    if (const std::int64_t gap = used(action, forward->second) - forward->second; gap > rules_.gap_bound || gap < 0) {
      problem(text_of(gap) + " updates since its forward, at most " + text_of(rules_.gap_bound) + " are allowed on this stage");
    }
    if (const std::int64_t delay = updates_ - forward->second; delay > std::max(rules_.delay_bound, rules_.gap_bound)) {
      problem("its gradient is " + text_of(delay) + " updates old, at most " + text_of(rules_.delay_bound) +
              " are allowed on this stage");
    }
  }

  std::int64_t used(const Action& action, std::int64_t forward) const {
    return version_used(*rules_.schedule, rules_.stage, action.kind, action.microbatch, updates_, forward);
  }

  void backward_weight(const Action& action) {
    in_order(action, weights_);
    if (++weights_ > inputs_) problem("its input gradient has not come before");
    if (weights_ > window_end()) problem("update " + text_of(updates_) + " should have come before");
  }

  void update(const Action& action) {
    in_order(action, updates_);
    if (weights_ != window_end() || inputs_ != weights_) {
      problem(text_of(weights_ - window_end() + rules_.window) + " backwards since the last update, " + text_of(rules_.window) +
              " are needed");
    }
    ++updates_;
  }

  std::int64_t window_end() const { return rules_.first_microbatch + (updates_ - rules_.first_update + 1) * rules_.window; }

  void in_order(const Action& action, std::int64_t& expected) {
    if (action.microbatch == expected) return;
    problem(std::string(action.microbatch < expected ? "came already" : "is too early") + ", the next number of this kind is " +
            text_of(expected));
    // Go on from the cell's own number, so that one mistake gives few messages.
    expected = action.microbatch;
  }

  void at_end(const char* what, std::int64_t done, std::int64_t expected) {
    if (done == expected) return;
    problems_.push_back({actions_.size(), place_text(plan_, row()) + " (stage " + text_of(rules_.stage) +
                                              "), end of its list: " + what + " reach " + text_of(done) + ", expected " +
                                              text_of(expected)});
  }

  void problem(const std::string& reason) { problems_.push_back({cell_, problem_text(plan_, row(), cell_, reason)}); }

  std::size_t row() const { return static_cast<std::size_t>(rules_.rank); }

  const Plan& plan_;
  const ActionList& actions_;
  const RowRules& rules_;
  std::vector<RowProblem>& problems_;
  std::size_t cell_ = 0;
  std::int64_t forwards_, inputs_, weights_, updates_;
  std::unordered_map<std::int64_t, std::int64_t> forward_version_;
};

}  // namespace

void check_row(const Plan& plan, const RowRules& rules, std::vector<RowProblem>& problems) {
  RowCheck(plan, rules, problems).run();
}

}  // namespace minipipe::schedules
