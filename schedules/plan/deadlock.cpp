#include <set>
#include <tuple>

#include "schedules/plan/communication.hpp"

namespace minipipe::schedules {
namespace {

using Key = std::tuple<Kind, int, std::int64_t>;

Key key(const Action& action) {
  return {action.kind == Kind::backward ? Kind::backward_input : action.kind, action.stage, action.microbatch};
}

// The other end of a message.
Action peer(const Action& action) {
  switch (action.kind) {
    case Kind::send_activation:
      return {Kind::receive_activation, action.stage + 1, action.microbatch};
    case Kind::receive_activation:
      return {Kind::send_activation, action.stage - 1, action.microbatch};
    case Kind::send_gradient:
      return {Kind::receive_gradient, action.stage - 1, action.microbatch};
    default:
      return {Kind::send_gradient, action.stage + 1, action.microbatch};
  }
}

class Blocking {
 public:
  Blocking(const Plan& plan, const Placement& placement, Sends sends)
      : plan_(plan), placement_(placement), buffered_(sends == Sends::buffered), next_(plan.ranks.size()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < next_.size(); ++rank) {
        while (step(rank)) moved = true;
      }
    }
  }

  std::size_t next(std::size_t rank) const { return next_[rank]; }

 private:
  // Moves one cell, or one group of messages, on; or starts messages.
  bool step(std::size_t rank) {
    const ActionList& list = plan_.ranks[rank];
    if (next_[rank] == list.size()) return false;
    const Action& action = list[next_[rank]];
    if (is_message(action.kind)) return group(rank);
    if (!can_compute(action)) return false;
    done_.insert(key(action));
    ++next_[rank];
    return true;
  }

  bool group(std::size_t rank) {
    const ActionList& list = plan_.ranks[rank];
    bool moved = false, all = true;
    std::size_t end = next_[rank];
    for (; end < list.size() && is_message(list[end].kind); ++end) {
      moved |= started_.insert(key(list[end])).second;
    }
    for (std::size_t cell = next_[rank]; cell < end; ++cell) {
      const Action& action = list[cell];
      const bool send = action.kind == Kind::send_activation || action.kind == Kind::send_gradient;
      all = all && ((send && buffered_) || started_.contains(key(peer(action))));
    }
    if (!all) return moved;
    for (; next_[rank] < end; ++next_[rank]) done_.insert(key(list[next_[rank]]));
    return true;
  }

  bool is_done(Kind kind, int stage, std::int64_t microbatch) const { return done_.contains({kind, stage, microbatch}); }

  bool can_compute(const Action& action) const {
    const int stage = action.stage;
    const std::int64_t k = action.microbatch;
    switch (action.kind) {
      case Kind::forward:
        if (stage == 0) return true;
        return same_rank(stage, stage - 1) ? is_done(Kind::forward, stage - 1, k) : is_done(Kind::receive_activation, stage, k);
      case Kind::backward:
      case Kind::backward_input:
        if (!is_done(Kind::forward, stage, k)) return false;
        if (stage + 1 == placement_.stages()) return true;
        return same_rank(stage, stage + 1) ? is_done(Kind::backward_input, stage + 1, k)
                                           : is_done(Kind::receive_gradient, stage, k);
      case Kind::backward_weight:
        return is_done(Kind::backward_input, stage, k);
      default:
        return true;
    }
  }
  bool same_rank(int a, int b) const { return placement_.rank_of(a) == placement_.rank_of(b); }

  const Plan& plan_;
  const Placement& placement_;
  bool buffered_;
  std::vector<std::size_t> next_;
  std::set<Key> started_, done_;
};

}  // namespace

std::vector<std::string> find_deadlocks(const Plan& plan, const Placement& placement, Sends sends) {
  Blocking blocking(plan, placement, sends);
  blocking.run();
  std::vector<std::string> problems;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const std::size_t next = blocking.next(rank);
    if (next == plan.ranks[rank].size()) continue;
    problems.push_back(problem_text(plan, rank, next,
                                    std::string("can never be left when sends ") +
                                        (sends == Sends::buffered ? "are buffered" : "wait for their receives")));
  }
  return problems;
}

}  // namespace minipipe::schedules
