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

std::string place_text(const Plan& plan, std::size_t rank) {
  const int line = rank < plan.sources.size() ? plan.sources[rank].line : 0;
  return (line > 0 ? "row " + std::to_string(line) + ", " : "") + "rank " + std::to_string(rank);
}

std::string place_text(const Plan& plan, std::size_t rank, std::size_t cell) {
  const std::size_t cells = rank < plan.ranks.size() ? plan.ranks[rank].size() : 0;
  if (cell >= cells) return place_text(plan, rank);
  // A plan that was changed after it was read counts its own cells.
  const bool known = rank < plan.sources.size() && plan.sources[rank].cells.size() == cells;
  const std::size_t number = known ? static_cast<std::size_t>(plan.sources[rank].cells[cell]) : cell + 1;
  return place_text(plan, rank) + ", cell " + std::to_string(number);
}

std::string problem_text(const Plan& plan, std::size_t rank, std::size_t cell, const std::string& reason) {
  return place_text(plan, rank, cell) + " (" + to_text(plan.ranks[rank][cell]) + "): " + reason;
}

}  // namespace minipipe::schedules
