#include <algorithm>

#include "schedules/tune/search.hpp"

namespace minipipe::schedules {

Plan split_backwards(const Plan& plan) {
  Plan result;
  for (const ActionList& list : plan.ranks) {
    ActionList& out = result.ranks.emplace_back();
    for (const Action& action : list) {
      if (action.kind != Kind::backward) {
        out.push_back(action);
        continue;
      }
      out.push_back({Kind::backward_input, action.stage, action.microbatch});
      out.push_back({Kind::backward_weight, action.stage, action.microbatch});
    }
  }
  return result;
}

namespace {

// Two workloads whose order on a device is fixed by the rules of a stage.
bool ordered(const Action& a, const Action& b) {
  return a.stage == b.stage && (a.kind == b.kind || a.microbatch == b.microbatch);
}

void shift(ActionList& list, std::size_t from, std::size_t to) {
  const auto begin = list.begin();
  const auto f = static_cast<std::ptrdiff_t>(from);
  const auto t = static_cast<std::ptrdiff_t>(to);
  if (from < to) {
    std::rotate(begin + f, begin + f + 1, begin + t + 1);
  } else {
    std::rotate(begin + t, begin + f, begin + f + 1);
  }
}

// Moves the workload at `from` towards `to`, as far as the rules of its stage let it; where it came to.
std::size_t shift_towards(ActionList& list, std::size_t from, std::size_t to) {
  std::size_t reached = from;
  while (reached != to) {
    const std::size_t next = reached < to ? reached + 1 : reached - 1;
    if (ordered(list[from], list[next])) break;
    reached = next;
  }
  shift(list, from, reached);
  return reached;
}

bool fits(const UpdateGraph& graph, const Plan& order, double cap) {
  if (cap == OrderEvaluator::kNever) return true;
  const auto peaks = peak_units(graph, order);
  return *std::max_element(peaks.begin(), peaks.end()) <= cap;
}

}  // namespace

bool OrderSearch::move_layer(std::vector<int>& partition) {
  const std::size_t stages = partition.size();
  if (stages < 2) return false;
  const std::size_t from = context_.below(stages);
  std::size_t to = context_.below(stages);
  if (context_.below(2) == 0) to = from == 0 ? 1 : from + 1 == stages || context_.below(2) == 0 ? from - 1 : from + 1;
  if (from == to || partition[from] <= context_.least_layers(from, stages)) return false;
  --partition[from];
  ++partition[to];
  return true;
}

// The workloads of a longest path: going back from the last end, the workload before on the same device if there is no gap,
// else the one that sent the message.
void OrderSearch::find_critical(const UpdateGraph& graph, const Plan& order) {
  const auto m = static_cast<std::size_t>(graph.microbatches);
  forward_place_.resize(graph.stages.size() * m);
  gradient_place_.resize(graph.stages.size() * m);
  std::size_t rank = 0;
  double latest = -1;
  for (std::size_t r = 0; r < order.ranks.size(); ++r) {
    const ActionList& list = order.ranks[r];
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::size_t cell = static_cast<std::size_t>(list[i].stage) * m + static_cast<std::size_t>(list[i].microbatch);
      if (list[i].kind == Kind::forward) forward_place_[cell] = i;
      if (list[i].kind == Kind::backward_input) gradient_place_[cell] = i;
    }
    if (list.empty()) continue;
    const double end = evaluator_.start(r, list.size() - 1) + graph.duration(list.back().kind, list.back().stage);
    if (end > latest) {
      latest = end;
      rank = r;
    }
  }
  critical_.clear();
  std::size_t place = order.ranks[rank].size() - 1;
  for (;;) {
    critical_.emplace_back(rank, place);
    const Action& action = order.ranks[rank][place];
    const double start = evaluator_.start(rank, place);
    if (start <= 0) return;
    if (place > 0) {
      const Action& before = order.ranks[rank][place - 1];
      if (evaluator_.start(rank, place - 1) + graph.duration(before.kind, before.stage) >= start - 1e-9) {
        --place;
        continue;
      }
    }
    const std::size_t cell = static_cast<std::size_t>(action.stage) * m + static_cast<std::size_t>(action.microbatch);
    const bool last = action.stage + 1 == graph.placement.stages();
    if (action.kind == Kind::forward && action.stage > 0) {
      rank = static_cast<std::size_t>(graph.placement.rank_of(action.stage - 1));
      place = forward_place_[cell - m];
    } else if (action.kind == Kind::backward_input && !last) {
      rank = static_cast<std::size_t>(graph.placement.rank_of(action.stage + 1));
      place = gradient_place_[cell + m];
    } else {
      return;
    }
  }
}

TunedPlan OrderSearch::anneal(const TunedPlan& start, bool borders, int steps, double warmth) {
  const TuneRequest& request = context_.request;
  TunedPlan best = start;
  TunedPlan current = start;
  current.order = split_backwards(start.order);
  UpdateGraph graph = make_graph(context_.sums, current.partition, current.placement, request.microbatches);
  const auto cost = [&] {
    const double makespan = evaluator_.makespan(graph, current.order);
    // The mean of the devices' ends breaks ties: a plan whose other devices end earlier has room.
    current.makespan = makespan;
    return makespan + 0.02 * evaluator_.sum_of_ends() / static_cast<double>(request.devices);
  };
  double now = cost();
  if (current.makespan == OrderEvaluator::kNever) return best;
  find_critical(graph, current.order);
  const bool limited = request.cap < OrderEvaluator::kNever;
  int since = 0;
  for (int step = 0; step < steps && !context_.over; ++step) {
    const double temperature = warmth * best.makespan * std::pow(0.01, static_cast<double>(step) / steps) + 1e-12;
    context_.count();
    if (borders && context_.below(8) == 0) {
      const std::vector<int> before = current.partition;
      if (!move_layer(current.partition)) continue;
      graph.stages = context_.sums.stages(current.partition);
      double after = OrderEvaluator::kNever;
      if (fits(graph, current.order, request.cap)) after = cost();
      if (!accept(context_, now, after, temperature)) {
        current.partition = before;
        graph.stages = context_.sums.stages(before);
        continue;
      }
      now = after;
    } else {
      auto [rank, place] = critical_[context_.below(critical_.size())];
      if (context_.below(3) == 0) {
        rank = context_.below(current.order.ranks.size());
        place = context_.below(current.order.ranks[rank].size());
      }
      ActionList& list = current.order.ranks[rank];
      const std::size_t distance = 1 + context_.below(context_.below(4) == 0 ? 24 : 4);
      const std::size_t target =
          context_.below(2) == 0 ? (place < distance ? 0 : place - distance) : std::min(list.size() - 1, place + distance);
      const std::size_t reached = shift_towards(list, place, target);
      if (reached == place) continue;
      double after = OrderEvaluator::kNever;
      if (!limited || fits(graph, current.order, request.cap)) after = cost();
      if (!accept(context_, now, after, temperature)) {
        shift(list, reached, place);
        continue;
      }
      now = after;
    }
    if (current.makespan < best.makespan) best = current;
    if (++since >= 8) {
      since = 0;
      // Starts of the last evaluation may belong to a rejected neighbour.
      now = cost();
      find_critical(graph, current.order);
    }
  }
  return best;
}

}  // namespace minipipe::schedules
