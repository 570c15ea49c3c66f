#include <algorithm>
#include <optional>
#include <queue>
#include <vector>

#include "schedules/plan/communication.hpp"

namespace minipipe::schedules {
namespace {

// A set of passes and messages, a bit for each that a plan may have: sets of nodes would take seconds for hundreds of stages.
class Actions {
 public:
  Actions(const Plan& plan, int stages) : stages_(static_cast<std::size_t>(stages)) {
    for (const ActionList& list : plan.ranks) {
      for (const Action& action : list) {
        if (is_message(action.kind) || is_compute(action.kind)) numbers_.push_back(action.microbatch);
      }
    }
    std::sort(numbers_.begin(), numbers_.end());
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
    bits_.resize(kinds * stages_ * numbers_.size());
  }

  // False if it was there.
  bool insert(const Action& action) {
    const auto place = place_of(action);
    if (!place || bits_[*place]) return false;
    return bits_[*place] = true;
  }

  bool contains(const Action& action) const {
    const auto place = place_of(action);
    return place && bits_[*place];
  }

 private:
  static constexpr std::size_t kinds = static_cast<std::size_t>(Kind::drain) + 1;

  std::optional<std::size_t> place_of(const Action& action) const {
    const auto found = std::lower_bound(numbers_.begin(), numbers_.end(), action.microbatch);
    const auto stage = static_cast<std::size_t>(action.stage);
    if (stage >= stages_ || found == numbers_.end() || *found != action.microbatch) return std::nullopt;
    // Whole and split backwards give the same gradient.
    const Kind kind = action.kind == Kind::backward ? Kind::backward_input : action.kind;
    const auto number = static_cast<std::size_t>(found - numbers_.begin());
    return (static_cast<std::size_t>(kind) * stages_ + stage) * numbers_.size() + number;
  }

  std::size_t stages_;
  std::vector<std::int64_t> numbers_;  // of microbatches, ascending
  std::vector<bool> bits_;
};

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
      : plan_(plan),
        placement_(placement),
        buffered_(sends == Sends::buffered),
        next_(plan.ranks.size()),
        is_awake_(plan.ranks.size()),
        started_(plan, placement.stages()),
        done_(started_) {}

  // A rank is looked at again only when a message to or from it has been started.
  void run() {
    for (std::size_t rank = 0; rank < next_.size(); ++rank) wake(rank);
    while (!awake_.empty()) {
      const std::size_t rank = awake_.front();
      awake_.pop();
      is_awake_[rank] = false;
      while (step(rank)) {
      }
    }
  }

  std::size_t next(std::size_t rank) const { return next_[rank]; }

 private:
  void wake(std::size_t rank) {
    if (is_awake_[rank]) return;
    is_awake_[rank] = true;
    awake_.push(rank);
  }

  // Moves one cell, or one group of messages, on; or starts messages.
  bool step(std::size_t rank) {
    const ActionList& list = plan_.ranks[rank];
    if (next_[rank] == list.size()) return false;
    const Action& action = list[next_[rank]];
    if (is_message(action.kind)) return group(rank);
    if (!can_compute(action)) return false;
    done_.insert(action);
    ++next_[rank];
    return true;
  }

  bool group(std::size_t rank) {
    const ActionList& list = plan_.ranks[rank];
    bool moved = false, all = true;
    std::size_t end = next_[rank];
    for (; end < list.size() && is_message(list[end].kind); ++end) {
      if (!started_.insert(list[end])) continue;
      moved = true;
      const int stage = peer(list[end]).stage;
      if (stage >= 0 && stage < placement_.stages()) wake(static_cast<std::size_t>(placement_.rank_of(stage)));
    }
    for (std::size_t cell = next_[rank]; cell < end; ++cell) {
      const Action& action = list[cell];
      const bool send = action.kind == Kind::send_activation || action.kind == Kind::send_gradient;
      all = all && ((send && buffered_) || started_.contains(peer(action)));
    }
    if (!all) return moved;
    for (; next_[rank] < end; ++next_[rank]) done_.insert(list[next_[rank]]);
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
  std::vector<bool> is_awake_;
  std::queue<std::size_t> awake_;
  Actions started_, done_;
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
