#include <unordered_set>

#include "schedules/check/row_check.hpp"

namespace minipipe::schedules {
namespace {

// Numbers that mostly come in ascending order, one after the other: these are a range and take no memory.
class Microbatches {
 public:
  void insert(std::int64_t number) {
    if (begin_ == end_) begin_ = end_ = number;
    if (number == end_) {
      ++end_;
    } else if (!contains(number)) {
      others_.insert(number);
    }
  }
  bool contains(std::int64_t number) const {
    return (number >= begin_ && number < end_) || (!others_.empty() && others_.contains(number));
  }

 private:
  std::int64_t begin_ = 0, end_ = 0;
  std::unordered_set<std::int64_t> others_;
};

// Runs the lists of one pipeline by a worklist: an action is done as soon as everything it needs is done. Messages are buffered
// without limit; a list that cannot be finished so can be finished under no transport.
class Execution {
 public:
  Execution(const std::vector<const ActionList*>& rows, std::size_t stages) : rows_(rows), done_(stages), next_(rows.size()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t row = 0; row < rows_.size(); ++row) {
        const ActionList& list = *rows_[row];
        for (; next_[row] < list.size() && can_start(list[next_[row]]); ++next_[row]) {
          const Action& action = list[next_[row]];
          if (is_stage(action.stage)) finish(done_[static_cast<std::size_t>(action.stage)], action);
          moved = true;
        }
      }
    }
  }

  std::size_t next(std::size_t row) const { return next_[row]; }

 private:
  // What others wait for.
  struct Done {
    Microbatches forwards, gradients;
  };

  // Whole and split backwards give the same gradient message.
  static void finish(Done& done, const Action& action) {
    if (action.kind == Kind::forward) done.forwards.insert(action.microbatch);
    if (action.kind == Kind::backward || action.kind == Kind::backward_input) done.gradients.insert(action.microbatch);
  }
  bool has_forward(std::size_t stage, std::int64_t microbatch) const { return done_[stage].forwards.contains(microbatch); }
  bool has_gradient(std::size_t stage, std::int64_t microbatch) const { return done_[stage].gradients.contains(microbatch); }

  bool is_stage(int stage) const { return stage >= 0 && static_cast<std::size_t>(stage) < done_.size(); }

  bool can_start(const Action& action) const {
    if (!is_stage(action.stage)) return true;  // named by the check of its row
    const auto stage = static_cast<std::size_t>(action.stage);
    const bool first = stage == 0;
    const bool last = stage + 1 == done_.size();
    switch (action.kind) {
      case Kind::forward:
      case Kind::receive_activation:
        return first || has_forward(stage - 1, action.microbatch);
      case Kind::backward:
      case Kind::backward_input:
        if (!has_forward(stage, action.microbatch)) return false;
        [[fallthrough]];
      case Kind::receive_gradient:
        return last || has_gradient(stage + 1, action.microbatch);
      case Kind::backward_weight:
        return has_gradient(stage, action.microbatch);
      default:
        return true;
    }
  }

  const std::vector<const ActionList*>& rows_;
  std::vector<Done> done_;
  std::vector<std::size_t> next_;
};

ActionList only(const ActionList& list, int stage, Kind kind) {
  ActionList result;
  for (const Action& action : list) {
    if (action.kind == kind && action.stage == stage) result.push_back(action);
  }
  return result;
}

// One direction between two neighbouring stages.
struct Edge {
  const ActionList& sender;
  const ActionList& receiver;
  int from_rank, to_rank;
  int from_stage, to_stage;
};

// Sends and receives of one edge must be the same microbatches in the same order; lists without any are fine.
void check_edge(const Edge& ends, Kind send, Kind receive, std::vector<std::string>& problems) {
  const ActionList sends = only(ends.sender, ends.from_stage, send);
  const ActionList receives = only(ends.receiver, ends.to_stage, receive);
  const std::string edge =
      "edge from rank " + std::to_string(ends.from_rank) + " to rank " + std::to_string(ends.to_rank) + ": ";
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

void check_execution(const Plan& plan, const std::vector<int>& ranks, const std::vector<int>& row_of_stage,
                     std::vector<std::string>& problems) {
  std::vector<const ActionList*> rows;
  for (const int rank : ranks) rows.push_back(&plan.ranks[static_cast<std::size_t>(rank)]);
  Execution execution(rows, row_of_stage.size());
  execution.run();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::size_t next = execution.next(row);
    if (next == rows[row]->size()) continue;
    problems.push_back(problem_text(plan, static_cast<std::size_t>(ranks[row]), next,
                                    "can never start: what it waits for comes later or not at all"));
  }
  for (std::size_t stage = 0; stage + 1 < row_of_stage.size(); ++stage) {
    const auto a = static_cast<std::size_t>(row_of_stage[stage]), b = static_cast<std::size_t>(row_of_stage[stage + 1]);
    const int upper = static_cast<int>(stage), lower = upper + 1;
    check_edge({*rows[a], *rows[b], ranks[a], ranks[b], upper, lower}, Kind::send_activation, Kind::receive_activation,
               problems);
    check_edge({*rows[b], *rows[a], ranks[b], ranks[a], lower, upper}, Kind::send_gradient, Kind::receive_gradient, problems);
  }
}

}  // namespace minipipe::schedules
