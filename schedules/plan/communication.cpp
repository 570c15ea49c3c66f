#include "schedules/plan/communication.hpp"

#include <algorithm>
#include <limits>

#include "schedules/error.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::schedules {
namespace {

// A cell and its place in the common order: all messages of a moment come before all that starts then.
struct Timed {
  Action action;
  double time;
  bool message;
  std::size_t order;  // of messages: by their senders' logs; of the others: in their list

  bool operator<(const Timed& other) const {
    if (time != other.time) return time < other.time;
    if (message != other.message) return message;
    return order < other.order;
  }
};

}  // namespace

Plan with_communication(const Plan& compute_only, const Placement& placement, const PassCosts& costs) {
  Plan stripped;
  for (const ActionList& list : compute_only.ranks) {
    ActionList& row = stripped.ranks.emplace_back();
    std::copy_if(list.begin(), list.end(), std::back_inserter(row),
                 [](const Action& action) { return !is_message(action.kind); });
  }
  if (placement_of(stripped, static_cast<int>(stripped.ranks.size())) != placement) {
    throw InputError("communication: the plan has its stages on other ranks than the placement says");
  }
  // No action takes no time, so that a message is always later than the start of what makes it.
  const Log log =
      simulate(stripped, Costs::equal(placement.stages(), costs.forward, costs.backward_input, costs.backward_weight)).log;
  std::vector<std::vector<Timed>> rows(log.ranks.size());
  std::size_t messages = 0;
  for (std::size_t rank = 0; rank < log.ranks.size(); ++rank) {
    for (std::size_t cell = 0; cell < log.ranks[rank].size(); ++cell) {
      const LoggedAction& entry = log.ranks[rank][cell];
      const Kind kind = entry.action.kind;
      if (kind == Kind::drain) continue;
      rows[rank].push_back({entry.action, entry.start_s, false, cell});
      const bool forward = kind == Kind::forward;
      if (!forward && kind != Kind::backward && kind != Kind::backward_input) continue;
      const int from = entry.action.stage, to = forward ? from + 1 : from - 1;
      if (to < 0 || to >= placement.stages() || placement.rank_of(to) == static_cast<int>(rank)) continue;
      const Action send{forward ? Kind::send_activation : Kind::send_gradient, from, entry.action.microbatch};
      const Action receive{forward ? Kind::receive_activation : Kind::receive_gradient, to, entry.action.microbatch};
      rows[rank].push_back({send, entry.end_s, true, messages});
      rows[static_cast<std::size_t>(placement.rank_of(to))].push_back({receive, entry.end_s, true, messages});
      ++messages;
    }
  }
  Plan plan;
  for (std::vector<Timed>& row : rows) {
    std::sort(row.begin(), row.end());
    ActionList& list = plan.ranks.emplace_back();
    for (const Timed& cell : row) list.push_back(cell.action);
  }
  return plan;
}

std::vector<std::string> find_deadlocks(const Plan& plan, const Placement& placement) {
  const auto has_messages = [](const ActionList& list) {
    return std::any_of(list.begin(), list.end(), [](const Action& action) { return is_message(action.kind); });
  };
  Plan complete = plan;
  if (std::none_of(plan.ranks.begin(), plan.ranks.end(), has_messages)) complete = with_communication(plan, placement);
  auto problems = find_deadlocks(complete, placement, Sends::buffered);
  for (std::string& problem : find_deadlocks(complete, placement, Sends::rendezvous)) problems.push_back(std::move(problem));
  return problems;
}

void prove_no_deadlock(const Plan& plan, const Placement& placement) {
  const auto problems = find_deadlocks(plan, placement);
  if (problems.empty()) return;
  std::string text = "the plan comes to a stop:";
  for (const std::string& problem : problems) text += "\n  " + problem;
  throw InputError(text);
}

}  // namespace minipipe::schedules
