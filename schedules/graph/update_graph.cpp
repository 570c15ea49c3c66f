#include "schedules/graph/update_graph.hpp"

#include <algorithm>

#include "schedules/error.hpp"

namespace minipipe::schedules {

UpdateGraph make_graph(const CostSums& sums, const std::vector<int>& partition, const Placement& placement, int microbatches) {
  return {placement, microbatches, sums.stages(partition), sums.profile().link};
}

double OrderEvaluator::makespan(const UpdateGraph& graph, const Plan& order) {
  const std::size_t ranks = order.ranks.size();
  const auto m = static_cast<std::size_t>(graph.microbatches);
  const std::size_t stages = graph.stages.size();
  const int* rank_of = graph.placement.rank_of_stage.data();
  forward_end_.assign(stages * m, -1);
  gradient_end_.assign(stages * m, -1);
  clock_.assign(ranks, 0);
  place_.assign(ranks, 0);
  starts_.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r) starts_[r].resize(order.ranks[r].size());
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks; ++r) {
      const ActionList& list = order.ranks[r];
      std::size_t place = place_[r];
      double clock = clock_[r];
      for (; place < list.size(); ++place) {
        const Action& action = list[place];
        const auto s = static_cast<std::size_t>(action.stage);
        const std::size_t cell = s * m + static_cast<std::size_t>(action.microbatch);
        double ready = 0;
        double* end = nullptr;
        double duration = 0;
        const LayerCosts& costs = graph.stages[s];
        if (action.kind == Kind::forward) {
          end = &forward_end_[cell];
          duration = costs.forward;
          if (s > 0) {
            ready = forward_end_[cell - m];
            if (ready < 0) break;
            if (rank_of[s] != rank_of[s - 1]) ready += graph.link;
          }
        } else if (action.kind == Kind::backward_weight) {
          duration = costs.backward_weight;
          ready = gradient_end_[cell];
          if (ready < 0) break;
        } else if (action.kind == Kind::backward || action.kind == Kind::backward_input) {
          end = &gradient_end_[cell];
          duration = costs.backward_input + (action.kind == Kind::backward ? costs.backward_weight : 0);
          ready = forward_end_[cell];
          if (ready < 0) break;
          if (s + 1 < stages) {
            ready = gradient_end_[cell + m];
            if (ready < 0) break;
            if (rank_of[s] != rank_of[s + 1]) ready += graph.link;
          }
        } else {
          starts_[r][place] = clock;
          continue;
        }
        const double start = std::max(clock, ready);
        starts_[r][place] = start;
        clock = start + duration;
        if (end != nullptr) *end = clock;
      }
      moved = moved || place != place_[r];
      place_[r] = place;
      clock_[r] = clock;
    }
  }
  double makespan = 0;
  sum_of_ends_ = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (place_[r] != order.ranks[r].size()) return kNever;
    makespan = std::max(makespan, clock_[r]);
    sum_of_ends_ += clock_[r];
  }
  return makespan;
}

std::vector<double> peak_units(const UpdateGraph& graph, const Plan& order) {
  std::vector<double> peaks;
  for (const ActionList& list : order.ranks) {
    double held = 0, peak = 0;
    for (const Action& action : list) {
      const double units = graph.stages[static_cast<std::size_t>(action.stage)].units;
      if (action.kind == Kind::forward) peak = std::max(peak, held += units);
      if (action.kind == Kind::backward || action.kind == Kind::backward_weight) held -= units;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

GraphResult simulate_graph(const UpdateGraph& graph, const Plan& order) {
  OrderEvaluator evaluator;
  GraphResult result;
  result.makespan = evaluator.makespan(graph, order);
  if (result.makespan == OrderEvaluator::kNever) {
    throw RunError("graph simulator: the lists of the ranks wait for each other; minipipe check names the cells");
  }
  double total = 0;
  for (std::size_t r = 0; r < order.ranks.size(); ++r) {
    ActionLog& log = result.log.ranks.emplace_back();
    std::vector<MemoryStep>& memory = result.memory.emplace_back();
    double compute = 0, held = 0;
    for (std::size_t i = 0; i < order.ranks[r].size(); ++i) {
      const Action& action = order.ranks[r][i];
      if (!is_compute(action.kind)) continue;
      const double start = evaluator.start(r, i);
      const double duration = graph.duration(action.kind, action.stage);
      log.push_back({action, start, start + duration, 0});
      compute += duration;
      const double units = graph.stages[static_cast<std::size_t>(action.stage)].units;
      if (action.kind == Kind::forward) memory.push_back({start, held += units});
      if (action.kind == Kind::backward || action.kind == Kind::backward_weight) {
        memory.push_back({start + duration, held -= units});
      }
    }
    result.compute.push_back(compute);
    total += compute;
  }
  result.peak_units = peak_units(graph, order);
  if (result.makespan > 0) {
    result.bubble_share = 1 - total / (static_cast<double>(order.ranks.size()) * result.makespan);
  }
  return result;
}

}  // namespace minipipe::schedules
