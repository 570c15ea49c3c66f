#include <algorithm>

#include "schedules/error.hpp"
#include "schedules/generate/generate.hpp"
#include "schedules/generate/generators.hpp"
#include "schedules/tune/search.hpp"

namespace minipipe::schedules {
namespace {

// The computations of a schedule's first update.
Plan order_of(const ScheduleOptions& options, const Placement& placement) {
  Plan plan = generate_plan(options, placement, 0, 1);
  for (ActionList& list : plan.ranks) {
    std::erase_if(list, [](const Action& action) { return !is_compute(action.kind); });
  }
  return plan;
}

class Baselines {
 public:
  explicit Baselines(const TuneRequest& request) : request_(request), sums_(request.profile), layers_(request.profile.size()) {
    options_.window = request.microbatches;
  }

  // Asked to stop, it ends with those so far, 1f1b at least.
  std::vector<TunedPlan> all() {
    const int n = request_.devices;
    const std::vector<int> uniform = uniform_partition(layers_, n);
    const auto add = [this](const std::string& name, const auto& candidates) {
      if (!request_.stopped()) keep_best(name, candidates());
    };
    using Plans = std::vector<TunedPlan>;
    keep_best("1f1b", {simple("1f1b", uniform, one_stage_per_rank(n))});
    add("interleaved", [&] { return interleaved(); });
    add("zero-bubble", [&] { return zero_bubble(uniform); });
    add("partition-only", [&] { return Plans{simple("1f1b", min_max_partition(request_.profile, n), one_stage_per_rank(n))}; });
    add("placement-only", [&] { return Plans{placement_only()}; });
    add("schedule-only", [&] { return Plans{schedule_only(uniform)}; });
    return std::move(result_);
  }

 private:
  TunedPlan timed(const std::vector<int>& partition, const Placement& placement, Plan order) {
    TunedPlan plan{"", partition, placement, std::move(order), 0};
    const UpdateGraph graph = make_graph(sums_, partition, placement, request_.microbatches);
    plan.makespan = evaluator_.makespan(graph, plan.order);
    const auto peaks = peak_units(graph, plan.order);
    if (*std::max_element(peaks.begin(), peaks.end()) > request_.cap) plan.makespan = OrderEvaluator::kNever;
    return plan;
  }

  TunedPlan simple(const std::string& name, const std::vector<int>& partition, const Placement& placement) {
    options_.name = name;
    options_.stages = placement.stages();
    return timed(partition, placement, order_of(options_, placement));
  }

  std::vector<TunedPlan> interleaved() {
    const int n = request_.devices;
    std::vector<TunedPlan> candidates;
    for (int chunks = 2; chunks * n <= std::min(layers_, request_.stage_limit()) && n > 1 && !request_.stopped(); ++chunks) {
      options_.chunks = chunks;
      candidates.push_back(simple("interleaved", uniform_partition(layers_, chunks * n), looped(n, chunks)));
    }
    return candidates;
  }

  std::vector<TunedPlan> zero_bubble(const std::vector<int>& uniform) {
    const int n = request_.devices;
    const Placement placement = one_stage_per_rank(n);
    std::vector<TunedPlan> candidates = {simple("zb-h1", uniform, placement), simple("zb-h2", uniform, placement)};
    options_.costs = {};
    double total[3] = {0, 0, 0};
    for (const LayerCosts& stage : sums_.stages(uniform)) {
      total[0] += stage.forward;
      total[1] += stage.backward_input;
      total[2] += stage.backward_weight;
    }
    options_.costs = {total[0] / n, total[1] / n, total[2] / n};
    for (const double limit : {1.0 * n, 2.0 * n}) {
      if (request_.stopped()) return candidates;
      options_.memory_limit = limit;
      candidates.push_back(simple("zb-auto", uniform, placement));
    }
    if (2 * n <= std::min(layers_, request_.stage_limit()) && n > 1 && !request_.stopped()) {
      options_.chunks = 2;
      candidates.push_back(simple("zb-v", uniform_partition(layers_, 2 * n), vee(n)));
    }
    return candidates;
  }

  // Evaluations of a baseline's own search: always as many, so that it is the same whatever the request's budget, unless each
  // evaluation takes so long that they would dwarf that budget.
  std::int64_t budget(std::int64_t usual) const {
    return request_.evaluations > 0 && request_.large() ? std::min(usual, request_.evaluations) : usual;
  }

  // Stages of equal size; their number and places searched.
  TunedPlan placement_only() {
    TuneRequest own = request_;
    own.evaluations = budget(2000);
    SearchContext context(own);
    StructureSearch search(context);
    Structure best;
    for (int stages = own.devices; stages <= std::min(layers_, own.stage_limit()); stages += own.devices) {
      if (request_.stopped()) break;
      Structure structure{uniform_partition(layers_, stages), {}, {}};
      structure.rules.whole_backward = true;
      for (int s = 0; s < stages; ++s) structure.rank_of_stage.push_back(s % own.devices);
      structure.makespan = search.evaluate(structure);
      for (int step = 0; step < 60 && stages > 1; ++step) {
        if (context.count()) break;
        Structure next = structure;
        const std::size_t s = context.below(next.rank_of_stage.size());
        if (context.below(2) == 0) {
          next.rank_of_stage[s] = static_cast<int>(context.below(static_cast<std::size_t>(own.devices)));
        } else {
          std::swap(next.rank_of_stage[s], next.rank_of_stage[context.below(next.rank_of_stage.size())]);
        }
        next.makespan = search.evaluate(next);
        if (next.makespan < structure.makespan) structure = next;
      }
      if (structure.makespan < best.makespan) best = structure;
    }
    return best.partition.empty() ? TunedPlan() : search.plan_of(best, "");
  }

  TunedPlan schedule_only(const std::vector<int>& uniform) {
    TuneRequest own = request_;
    own.evaluations = budget(20000);
    SearchContext context(own);
    StructureSearch search(context);
    Structure structure{uniform, one_stage_per_rank(own.devices).rank_of_stage, {}};
    structure.makespan = search.evaluate(structure);
    if (structure.makespan == OrderEvaluator::kNever) return {};
    return OrderSearch(context).anneal(search.plan_of(structure, ""), false, 4000);
  }

  void keep_best(const std::string& name, const std::vector<TunedPlan>& candidates) {
    const TunedPlan* best = nullptr;
    for (const TunedPlan& plan : candidates) {
      if (plan.makespan < OrderEvaluator::kNever && (best == nullptr || plan.makespan < best->makespan)) best = &plan;
    }
    if (best == nullptr) return;
    result_.push_back(*best);
    result_.back().name = name;
  }

  const TuneRequest& request_;
  CostSums sums_;
  int layers_;
  ScheduleOptions options_;
  OrderEvaluator evaluator_;
  std::vector<TunedPlan> result_;
};

}  // namespace

std::vector<TunedPlan> baselines(const TuneRequest& request) { return Baselines(request).all(); }

}  // namespace minipipe::schedules
