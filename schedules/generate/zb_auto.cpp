#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "schedules/generate/generators.hpp"
#include "schedules/simulate/simulator.hpp"

namespace minipipe::schedules {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What the heuristic leaves open; all settings are tried.
struct Switches {
  bool input_first;    // an input gradient goes before a forward whenever both are ready, else they take turns
  bool fill_any_gap;   // a weight gradient also goes into a gap that is shorter than itself
  bool spread_memory;  // at most 2(N-i)+1 microbatches between forward and input gradient, so that later stages keep room
};

// List scheduling in time: the stage that is free first decides, from what has arrived and from arrivals that are under way.
class Greedy {
 public:
  Greedy(int stages, std::int64_t m, std::int64_t limit, const PassCosts& costs, Switches switches)
      : m_(m), limit_(limit), costs_(costs), switches_(switches), stages_(static_cast<std::size_t>(stages)) {}

  Plan run() {
    while (true) {
      const std::size_t s = first_free();
      if (stages_[s].free == kNever) break;
      decide(s);
    }
    Plan plan;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      stages_[s].list.push_back({Kind::update, static_cast<int>(s), 0});
      plan.ranks.push_back(std::move(stages_[s].list));
    }
    return plan;
  }

 private:
  struct Row {
    double free = 0;
    std::int64_t forwards = 0, inputs = 0, weights = 0;
    std::vector<double> activations, gradients;  // arrival times
    bool forward_last = false;
    bool waiting = false;  // idle until `free`, or until it hears of a message
    ActionList list;
  };

  std::size_t first_free() const {
    std::size_t best = 0;
    for (std::size_t s = 1; s < stages_.size(); ++s) {
      if (stages_[s].free < stages_[best].free) best = s;
    }
    return best;
  }

  double forward_at(std::size_t s) const {
    const Row& row = stages_[s];
    if (row.forwards == m_ || row.forwards - row.weights >= limit_) return kNever;
    const auto most = static_cast<std::int64_t>(2 * (stages_.size() - s) - 1);
    if (switches_.spread_memory && row.forwards - row.inputs >= most) return kNever;
    return s == 0 ? 0 : arrival(row.activations, row.forwards);
  }
  double input_at(std::size_t s) const {
    const Row& row = stages_[s];
    if (row.inputs == row.forwards) return kNever;
    return s + 1 == stages_.size() ? 0 : arrival(row.gradients, row.inputs);
  }
  static double arrival(const std::vector<double>& times, std::int64_t microbatch) {
    const auto k = static_cast<std::size_t>(microbatch);
    return k < times.size() ? times[k] : kNever;
  }

  void decide(std::size_t s) {
    Row& row = stages_[s];
    const double now = row.free, forward = forward_at(s), input = input_at(s);
    if (input <= now && (forward > now || switches_.input_first || row.forward_last)) return start(s, Kind::backward_input);
    if (forward <= now) return start(s, Kind::forward);
    const double next = std::min(forward, input);
    const bool full = row.forwards < m_ && row.forwards - row.weights >= limit_;
    if (row.weights < row.inputs && (now + costs_.backward_weight <= next || full || switches_.fill_any_gap)) {
      return start(s, Kind::backward_weight);
    }
    // Nothing fits: look again at the next arrival, or when a neighbour starts something whose end is an arrival.
    row.waiting = true;
    row.free = next;
  }

  // The message is under way: a waiting stage now knows of it.
  static void announce(Row& row, std::vector<double>& arrivals, double now, double time) {
    arrivals.push_back(time);
    if (!std::exchange(row.waiting, false)) return;
    row.free = now;
  }

  void start(std::size_t s, Kind kind) {
    Row& row = stages_[s];
    const double now = row.free;
    row.waiting = false;
    row.forward_last = kind == Kind::forward;
    switch (kind) {
      case Kind::forward:
        row.free += costs_.forward;
        if (s + 1 < stages_.size()) announce(stages_[s + 1], stages_[s + 1].activations, now, row.free);
        row.list.push_back({kind, static_cast<int>(s), row.forwards++});
        break;
      case Kind::backward_input:
        row.free += costs_.backward_input;
        if (s > 0) announce(stages_[s - 1], stages_[s - 1].gradients, now, row.free);
        row.list.push_back({kind, static_cast<int>(s), row.inputs++});
        break;
      default:
        row.free += costs_.backward_weight;
        row.list.push_back({kind, static_cast<int>(s), row.weights++});
        break;
    }
  }

  std::int64_t m_, limit_;
  PassCosts costs_;
  Switches switches_;
  std::vector<Row> stages_;
};

struct Score {
  double span = kNever;
  double makespan = kNever;
  auto operator<=>(const Score&) const = default;
};

Score score(const Plan& plan, const PassCosts& costs) {
  const int stages = static_cast<int>(plan.ranks.size());
  const auto result = simulate(plan, Costs::equal(stages, costs.forward, costs.backward_input, costs.backward_weight));
  Score score{0, result.makespan};
  for (const ActionLog& log : result.log.ranks) {
    double last = 0;
    for (const LoggedAction& entry : log) {
      if (is_compute(entry.action.kind)) last = entry.end_s;
    }
    score.span = std::max(score.span, last - log.front().start_s);
  }
  return score;
}

// Between H1 and H2: `extra` further warm-up forwards where H2 has as many or more.
Plan hand_made(int stages, std::int64_t m, std::int64_t limit, std::int64_t extra) {
  Plan plan;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t behind = stages - 1 - stage;
    const std::int64_t warm = std::min(limit, behind + 1 + std::min(behind, extra));
    plan.ranks.push_back(zero_bubble_row(stage, m, warm, limit - warm));
  }
  return plan;
}

}  // namespace

Plan zb_auto_update(int stages, std::int64_t m, std::int64_t limit, const PassCosts& costs) {
  Plan best;
  Score best_score;
  const auto consider = [&](Plan plan) {
    const Score found = score(plan, costs);
    if (!best.ranks.empty() && found >= best_score) return;
    best_score = found;
    best = std::move(plan);
  };
  // Hand-made orders first: among equals they have the simpler rule. H1 and H2 have limits N and 2N-1, which may be better than
  // using all there is. Each costs a simulation, so that of many between the two some are left out.
  constexpr std::int64_t most_steps = 32;
  const std::int64_t step = (stages + most_steps - 1) / most_steps;
  for (const std::int64_t used :
       std::set<std::int64_t>{limit, std::min<std::int64_t>(limit, stages), std::min<std::int64_t>(limit, 2 * stages - 1)}) {
    const std::int64_t last = std::clamp<std::int64_t>(used - stages, 0, stages - 1);
    for (std::int64_t extra = 0; extra < last; extra += step) consider(hand_made(stages, m, used, extra));
    consider(hand_made(stages, m, used, last));
  }
  for (int setting = 0; setting < 8; ++setting) {
    consider(Greedy(stages, m, limit, costs, {(setting & 1) != 0, (setting & 2) != 0, (setting & 4) != 0}).run());
  }
  return best;
}

}  // namespace minipipe::schedules
