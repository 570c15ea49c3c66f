#include <algorithm>

#include "schedules/tune/search.hpp"

namespace minipipe::schedules {

namespace {
bool every_rank_used(const std::vector<int>& rank_of_stage, int ranks) {
  std::vector<char> used(static_cast<std::size_t>(ranks), 0);
  for (const int rank : rank_of_stage) used[static_cast<std::size_t>(rank)] = 1;
  return std::find(used.begin(), used.end(), 0) == used.end();
}
}  // namespace

double StructureSearch::evaluate(const Structure& structure, Plan* order) {
  const TuneRequest& request = context_.request;
  if (!every_rank_used(structure.rank_of_stage, request.devices)) return OrderEvaluator::kNever;
  const UpdateGraph graph =
      make_graph(context_.sums, structure.partition, {request.devices, structure.rank_of_stage}, request.microbatches);
  ListRules rules = structure.rules;
  rules.cap = request.cap;
  if (request.cap < OrderEvaluator::kNever) {
    const auto units = least_units(graph);
    if (*std::max_element(units.begin(), units.end()) > request.cap) return OrderEvaluator::kNever;
  }
  return scheduler_.run(graph, rules, order);
}

bool StructureSearch::change(Structure& structure, const StructureMoves& moves) {
  const auto pick = context_.below(10);
  std::vector<int>& partition = structure.partition;
  std::vector<int>& ranks = structure.rank_of_stage;
  const std::size_t stages = partition.size();
  const auto devices = static_cast<std::size_t>(context_.request.devices);
  if (pick < 4) {
    if (!moves.partition || stages < 2) return false;
    const std::size_t from = context_.below(stages);
    std::size_t to = context_.below(stages);
    if (context_.below(2) == 0) to = from == 0 ? 1 : from + 1 == stages || context_.below(2) == 0 ? from - 1 : from + 1;
    if (from == to || partition[from] <= context_.least_layers(from, stages)) return false;
    --partition[from];
    ++partition[to];
    return true;
  }
  if (pick == 9) {
    if (!moves.rules) return false;
    switch (context_.below(4)) {
      case 0:
        structure.rules.alternate = !structure.rules.alternate;
        break;
      case 1:
        structure.rules.defer = !structure.rules.defer;
        break;
      case 2:
        structure.rules.deep_forward = !structure.rules.deep_forward;
        break;
      default:
        structure.rules.hold = 0.25 * static_cast<double>(context_.below(4));
    }
    return true;
  }
  if (!moves.placement) return false;
  const std::size_t s = context_.below(stages);
  if (pick == 4 || pick == 5) {
    ranks[s] = static_cast<int>(context_.below(devices));
    return true;
  }
  if (pick == 6) {
    std::swap(ranks[s], ranks[context_.below(stages)]);
    return true;
  }
  const auto at = static_cast<std::ptrdiff_t>(s);
  if (pick == 7) {
    // What is left of the first stage may be the embedding alone, and of the last the head.
    const int lower_least = context_.least_layers(s, stages + 1), upper_least = context_.least_layers(s + 1, stages + 1);
    const int ways = partition[s] - lower_least - upper_least + 1;
    if (ways < 1 || static_cast<int>(stages) >= context_.request.stage_limit()) return false;
    const int upper = upper_least + static_cast<int>(context_.below(static_cast<std::size_t>(ways)));
    partition[s] -= upper;
    partition.insert(partition.begin() + at, upper);
    ranks.insert(ranks.begin() + at + static_cast<std::ptrdiff_t>(context_.below(2)),
                 static_cast<int>(context_.below(devices)));
    return true;
  }
  if (stages <= devices || s + 1 == stages) return false;
  partition[s] += partition[s + 1];
  partition.erase(partition.begin() + at + 1);
  ranks.erase(ranks.begin() + at + static_cast<std::ptrdiff_t>(context_.below(2)));
  return true;
}

Structure StructureSearch::anneal(Structure current, const StructureMoves& moves, int steps, double warmth) {
  Structure best = current;
  for (int step = 0; step < steps && !context_.over; ++step) {
    const double temperature = warmth * best.makespan * std::pow(0.02, static_cast<double>(step) / steps) + 1e-12;
    Structure next = current;
    bool changed = change(next, moves);
    while (context_.below(4) == 0) changed = change(next, moves) || changed;
    if (changed) next.makespan = evaluate(next);
    context_.count();
    if (!changed || !accept(context_, current.makespan, next.makespan, temperature)) continue;
    current = std::move(next);
    if (current.makespan < best.makespan) best = current;
  }
  return best;
}

TunedPlan StructureSearch::plan_of(const Structure& structure, const std::string& name) {
  TunedPlan plan{name, structure.partition, {context_.request.devices, structure.rank_of_stage}, {}, 0};
  plan.makespan = evaluate(structure, &plan.order);
  return plan;
}

}  // namespace minipipe::schedules
