#include "schedules/plan/plan.hpp"

namespace minipipe::schedules {

Plan Log::plan() const {
  Plan result;
  result.ranks.reserve(ranks.size());
  for (const ActionLog& log : ranks) {
    ActionList& list = result.ranks.emplace_back();
    list.reserve(log.size());
    for (const LoggedAction& entry : log) list.push_back(entry.action);
  }
  return result;
}

}  // namespace minipipe::schedules
