#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"
#include "schedules/tune/profile.hpp"

namespace minipipe::schedules {

// All workloads of one update of a pipeline: forward, input gradient and weight gradient of every microbatch on every stage.
// F(s) needs F(s-1), the last stage's I its F, I(s) needs I(s+1), W(s) its I(s); over a link the message takes `link` longer.
// A whole backward B takes the place of I and W. Times are in the units of the costs; whole numbers are calculated exactly.
struct UpdateGraph {
  Placement placement;
  int microbatches = 1;
  std::vector<LayerCosts> stages;  // costs of each stage
  double link = 0;

  double duration(Kind kind, int stage) const {
    const LayerCosts& costs = stages[static_cast<std::size_t>(stage)];
    switch (kind) {
      case Kind::forward:
        return costs.forward;
      case Kind::backward:
        return costs.backward_input + costs.backward_weight;
      case Kind::backward_input:
        return costs.backward_input;
      default:
        return costs.backward_weight;
    }
  }
};

UpdateGraph make_graph(const CostSums& sums, const std::vector<int>& partition, const Placement& placement, int microbatches);

// Activation memory of a rank, in units of layer x microbatch: a stage's units are taken when a forward starts and given back
// when its weight gradient (or whole backward) ends. What a rank holds thus follows from its order alone.
struct MemoryStep {
  double time = 0;
  double units = 0;  // from this time on
};

struct GraphResult {
  double makespan = 0;
  Log log;                                      // by rank: start and end of every workload
  std::vector<double> compute;                  // by rank
  std::vector<double> peak_units;               // by rank
  std::vector<std::vector<MemoryStep>> memory;  // by rank
  double bubble_share = 0;                      // 1 - sum(compute) / (ranks * makespan)
};

// Runs every rank's list in order, each workload as early as its inputs allow. Only computations count; updates and messages in
// the plan are skipped. RunError if the lists wait for each other.
GraphResult simulate_graph(const UpdateGraph& graph, const Plan& order);

// By rank, the most units held at one time.
std::vector<double> peak_units(const UpdateGraph& graph, const Plan& order);

// The same calculation of the makespan alone, for searches: keeps its memory from call to call.
class OrderEvaluator {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  // kNever if the lists wait for each other.
  double makespan(const UpdateGraph& graph, const Plan& order);

  // Of the last call: when the workload at this place of a rank's list started, and the sum over the ranks of their last end.
  double start(std::size_t rank, std::size_t place) const { return starts_[rank][place]; }
  double sum_of_ends() const { return sum_of_ends_; }

 private:
  std::vector<double> forward_end_, gradient_end_, clock_;
  std::vector<std::size_t> place_;
  std::vector<std::vector<double>> starts_;
  double sum_of_ends_ = 0;
};

}  // namespace minipipe::schedules
