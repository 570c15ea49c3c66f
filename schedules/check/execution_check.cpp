#include <set>
#include <utility>

#include "schedules/check/row_check.hpp"

namespace minipipe::schedules {
namespace {

// Runs the lists of one pipeline by a worklist: an action is done as soon as everything it needs is done. Messages are buffered
// without limit; a list that cannot be finished so can be finished under no transport.
class Execution {
 public:
  explicit Execution(const std::vector<const ActionList*>& stages)
      : stages_(stages), done_(stages.size()), next_(stages.size()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < stages_.size(); ++stage) {
        const ActionList& list = *stages_[stage];
        for (; next_[stage] < list.size() && can_start(stage, list[next_[stage]]); ++next_[stage]) {
          done_[stage].insert(key(list[next_[stage]]));
          moved = true;
        }
      }
    }
  }

  std::size_t next(std::size_t stage) const { return next_[stage]; }

 private:
  using Key = std::pair<Kind, std::int64_t>;

  // Whole and split backwards give the same gradient message.
  static Key key(const Action& action) {
    return {action.kind == Kind::backward ? Kind::backward_input : action.kind, action.microbatch};
  }
  bool is_done(std::size_t stage, Kind kind, std::int64_t microbatch) const {
    return done_[stage].contains({kind, microbatch});
  }

  bool can_start(std::size_t stage, const Action& action) const {
    const bool first = stage == 0;
    const bool last = stage + 1 == stages_.size();
    switch (action.kind) {
      case Kind::forward:
      case Kind::receive_activation:
        return first || is_done(stage - 1, Kind::forward, action.microbatch);
      case Kind::backward:
      case Kind::backward_input:
        if (!is_done(stage, Kind::forward, action.microbatch)) return false;
        [[fallthrough]];
      case Kind::receive_gradient:
        return last || is_done(stage + 1, Kind::backward_input, action.microbatch);
      case Kind::backward_weight:
        return is_done(stage, Kind::backward_input, action.microbatch);
      default:
        return true;
    }
  }

  const std::vector<const ActionList*>& stages_;
  std::vector<std::set<Key>> done_;
  std::vector<std::size_t> next_;
};

ActionList only(const ActionList& list, Kind kind) {
  ActionList result;
  for (const Action& action : list) {
    if (action.kind == kind) result.push_back(action);
  }
  return result;
}

// Sends and receives of one edge must be the same microbatches in the same order; lists without any are fine.
void check_edge(const ActionList& sender, const ActionList& receiver, int from, int to, Kind send, Kind receive,
                std::vector<std::string>& problems) {
  const ActionList sends = only(sender, send);
  const ActionList receives = only(receiver, receive);
  const std::string edge = "edge from rank " + std::to_string(from) + " to rank " + std::to_string(to) + ": ";
  if (sends.size() != receives.size()) {
    problems.push_back(edge + std::to_string(sends.size()) + " cells " + std::string(letters(send)) + ", but " +
                       std::to_string(receives.size()) + " cells " + std::string(letters(receive)));
    return;
  }
  for (std::size_t i = 0; i < sends.size(); ++i) {
    if (sends[i].microbatch == receives[i].microbatch) continue;
    problems.push_back(edge + to_text(sends[i]) + " meets " + to_text(receives[i]) + "; send and receive order differ");
    return;
  }
}

}  // namespace

void check_execution(const std::vector<const ActionList*>& stages, const std::vector<int>& ranks,
                     std::vector<std::string>& problems) {
  Execution execution(stages);
  execution.run();
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const std::size_t next = execution.next(stage);
    if (next == stages[stage]->size()) continue;
    problems.push_back(problem_text(ranks[stage], next, (*stages[stage])[next],
                                    "can never start: what it waits for comes later or not at all"));
  }
  for (std::size_t stage = 0; stage + 1 < stages.size(); ++stage) {
    const ActionList& upper = *stages[stage];
    const ActionList& lower = *stages[stage + 1];
    check_edge(upper, lower, ranks[stage], ranks[stage + 1], Kind::send_activation, Kind::receive_activation, problems);
    check_edge(lower, upper, ranks[stage + 1], ranks[stage], Kind::send_gradient, Kind::receive_gradient, problems);
  }
}

}  // namespace minipipe::schedules
