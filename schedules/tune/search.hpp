#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>

#include "schedules/graph/list_scheduler.hpp"
#include "schedules/tune/tuner.hpp"

namespace minipipe::schedules {

// What the searches of the tuner share: costs, limits, random numbers, and the count of evaluations.
struct SearchContext {
  explicit SearchContext(const TuneRequest& given)
      : request(given), sums(given.profile), random(given.seed), asked_every(given.large() ? 1 : 16) {}

  const TuneRequest& request;
  CostSums sums;
  std::mt19937_64 random;  // drawn from directly: standard distributions differ between libraries
  std::int64_t evaluations = 0;
  std::int64_t asked_every;  // evaluations between questions whether to stop; where one takes long, the clock costs nothing
  bool over = false;

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random() % n); }
  double share() { return static_cast<double>(random() >> 11) * 0x1p-53; }
  // Counts one evaluation; true if the search has to end.
  bool count() {
    ++evaluations;
    if (request.evaluations > 0 && evaluations >= request.evaluations) over = true;
    if (evaluations % asked_every == 0 && request.stopped()) over = true;
    return over;
  }
  // Fewest layers of a stage: the ends may consist of embedding or head alone.
  int least_layers(std::size_t stage, std::size_t stages) const {
    if (stages == 1) return 1;
    if (stage == 0 && request.profile.has_embedding()) return 0;
    return stage + 1 == stages && request.profile.has_head() ? 0 : 1;
  }
};

// Accepts a step of simulated annealing.
inline bool accept(SearchContext& context, double before, double after, double temperature) {
  return after <= before || context.share() < std::exp((before - after) / temperature);
}

// A plan as the list scheduler makes it.
struct Structure {
  std::vector<int> partition;
  std::vector<int> rank_of_stage;
  ListRules rules;
  double makespan = std::numeric_limits<double>::infinity();
};

// One that needs as little memory as can be: stages in sequence if they fit under the cap, else layers spread at will, as far
// as most_stages lets them. InputError naming device, stage and what is missing if neither fits.
Structure frugal_structure(const TuneRequest& request);

struct StructureMoves {
  bool partition = true;
  bool placement = true;  // places and number of stages
  bool rules = true;
};

class StructureSearch {
 public:
  explicit StructureSearch(SearchContext& context) : context_(context) {}

  // The makespan, infinite if the structure does not fit under the cap or leaves a device without a stage.
  double evaluate(const Structure& structure, Plan* order = nullptr);
  // Annealing of `steps` steps; the best structure seen.
  Structure anneal(Structure start, const StructureMoves& moves, int steps, double warmth = 0.01);
  TunedPlan plan_of(const Structure& structure, const std::string& name);

 private:
  bool change(Structure& structure, const StructureMoves& moves);

  SearchContext& context_;
  ListScheduler scheduler_;
};

// Moves single workloads along a device's list and layers across the borders of stages.
class OrderSearch {
 public:
  explicit OrderSearch(SearchContext& context) : context_(context) {}

  // Annealing of `steps` steps; the best plan seen, never worse than `start`.
  TunedPlan anneal(const TunedPlan& start, bool borders, int steps, double warmth = 0.002);

 private:
  bool move_layer(std::vector<int>& partition);
  void find_critical(const UpdateGraph& graph, const Plan& order);

  SearchContext& context_;
  OrderEvaluator evaluator_;
  std::vector<std::pair<std::size_t, std::size_t>> critical_;  // rank and place
  std::vector<std::size_t> forward_place_, gradient_place_;
};

// The plan with every whole backward as input and weight gradient, one behind the other.
Plan split_backwards(const Plan& plan);

}  // namespace minipipe::schedules
