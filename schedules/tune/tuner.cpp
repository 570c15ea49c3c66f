#include "schedules/tune/tuner.hpp"

#include <algorithm>

#include "schedules/error.hpp"
#include "schedules/tune/search.hpp"

namespace minipipe::schedules {

BubbleDiagnosis diagnose(const GraphResult& result) {
  BubbleDiagnosis diagnosis;
  double least = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const ActionLog& log : result.log.ranks) {
    double boundary = result.makespan, residual = 0;
    if (!log.empty()) boundary = log.front().start_s + (result.makespan - log.back().end_s);
    for (std::size_t i = 1; i < log.size(); ++i) residual += log[i].start_s - log[i - 1].end_s;
    diagnosis.boundary += boundary;
    diagnosis.residual += residual;
    least = std::min(least, boundary + residual);
    most = std::max(most, boundary + residual);
  }
  diagnosis.spread = most - least;
  return diagnosis;
}

std::vector<Phase> phase_order(const BubbleDiagnosis& diagnosis, double smallest_layer) {
  const bool ends = diagnosis.boundary > diagnosis.residual;
  const Phase second = ends ? Phase::placement : Phase::schedule;
  const Phase third = ends ? Phase::schedule : Phase::placement;
  if (diagnosis.spread > smallest_layer) return {Phase::partition, second, third};
  return {second, third, Phase::partition};
}

namespace {

class Tuner {
 public:
  explicit Tuner(const TuneRequest& request) : request_(request), context_(request_), structures_(context_), orders_(context_) {
    result_.lower_bound = lower_bound(request.profile, request.devices, request.microbatches);
    smallest_layer_ = std::numeric_limits<double>::infinity();
    for (const LayerCosts& layer : request.profile.layers) smallest_layer_ = std::min(smallest_layer_, layer.time());
  }

  TuneResult run() {
    if (request_.start) {
      start_from(*request_.start);
    } else {
      result_.baselines = baselines(request_);
      for (const TunedPlan& plan : result_.baselines) offer(plan, plan.name);
      context_.over = result_.best.makespan < OrderEvaluator::kNever && request_.stopped();
      if (!context_.over) start();
    }
    while (!context_.over && !done()) cycle();
    result_.evaluations = context_.evaluations;
    return std::move(result_);
  }

 private:
  bool done() const { return result_.best.makespan <= result_.lower_bound; }

  bool offer(const TunedPlan& plan, const std::string& phase) {
    if (!(plan.makespan < result_.best.makespan)) return false;
    result_.best = plan;
    result_.best.name = phase;
    if (request_.progress) request_.progress({context_.evaluations, phase, plan.makespan, result_.lower_bound});
    return true;
  }

  void start_from(TunedPlan plan) {
    for (ActionList& list : plan.order.ranks) {
      std::erase_if(list, [](const Action& action) { return !is_compute(action.kind); });
    }
    const UpdateGraph graph = make_graph(context_.sums, plan.partition, plan.placement, request_.microbatches);
    plan.makespan = simulate_graph(graph, plan.order).makespan;
    offer(plan, "start");
    Structure structure{plan.partition, plan.placement.rank_of_stage, {}};
    structure.makespan = structures_.evaluate(structure);
    if (structure.makespan < OrderEvaluator::kNever) pool_.push_back(structure);
  }

  // List-scheduled plans of every number of stages that is a multiple of the devices, under several rules.
  void start() {
    if (request_.cap < OrderEvaluator::kNever) {
      Structure frugal = frugal_structure(request_);
      frugal.makespan = structures_.evaluate(frugal);
      context_.count();
      pool_.push_back(frugal);
      offer(structures_.plan_of(frugal, "list"), "list");
    }
    for (int stages = request_.devices; stages <= request_.stage_limit(); stages += request_.devices) {
      const int ends = (request_.profile.has_embedding() ? 1 : 0) + (request_.profile.has_head() ? 1 : 0);
      if (stages > request_.profile.size() + (stages > 1 ? ends : 0)) break;
      std::vector<std::vector<int>> partitions = {min_max_partition(request_.profile, stages)};
      if (stages <= request_.profile.size()) partitions.push_back(uniform_partition(request_.profile.size(), stages));
      Structure best;
      for (const auto& partition : partitions) {
        for (const bool snake : {false, true}) {
          for (const double hold : {0.0, 0.5}) {
            Structure structure{partition, {}, {}};
            structure.rules.hold = hold;
            for (int s = 0; s < stages; ++s) {
              const int k = s % request_.devices;
              structure.rank_of_stage.push_back(snake && (s / request_.devices) % 2 == 1 ? request_.devices - 1 - k : k);
            }
            structure.makespan = structures_.evaluate(structure);
            if (structure.makespan < best.makespan) best = structure;
            if (context_.count()) break;
          }
        }
      }
      if (best.makespan == OrderEvaluator::kNever) continue;
      pool_.push_back(best);
      offer(structures_.plan_of(best, "list"), "list");
      if (context_.over) return;
    }
  }

  // One round: phases in the order the bubbles suggest; a phase that does not help is followed by the next one.
  void cycle() {
    const UpdateGraph graph = make_graph(context_.sums, result_.best.partition, result_.best.placement, request_.microbatches);
    const BubbleDiagnosis diagnosis = diagnose(simulate_graph(graph, result_.best.order));
    for (const Phase phase : phase_order(diagnosis, smallest_layer_)) {
      if (context_.over) return;
      if (run(phase)) {
        round_ = 0;
        return;
      }
    }
    ++round_;
  }

  bool run(Phase phase) {
    const int effort = 1 << std::min(round_, 4);
    switch (phase) {
      case Phase::partition:
        return offer(search_order(result_.best, true, effort), "partition");
      case Phase::schedule:
        return offer(search_order(result_.best, false, effort), "schedule");
      case Phase::placement:
        return restructure(effort);
    }
    return false;
  }

  // Colder first; where that has found nothing, warm enough to leave the plan's basin. A workload is a larger part of the
  // makespan the fewer there are.
  TunedPlan search_order(const TunedPlan& plan, bool borders, int effort) {
    constexpr double warmths[] = {0.002, 0.01, 0.05};
    const double workloads = 3.0 * request_.microbatches * plan.placement.stages();
    const int steps = static_cast<int>(std::clamp(20 * workloads, 1000.0, 10000.0));
    return orders_.anneal(plan, borders, steps * effort, warmths[round_ % 3]);
  }

  // Anneals one of the structures and works out its order: the list scheduler's makespan alone does not tell how good the
  // structure is.
  bool restructure(int effort) {
    if (pool_.empty()) return false;
    const std::size_t which = turn_++ % pool_.size();
    Structure& member = pool_[which];
    // Warm enough to leave the member's basin the more often it was visited.
    Structure found = structures_.anneal(member, {}, 600 * effort, 0.01 * (1 + static_cast<double>(context_.below(3))));
    if (found.makespan < member.makespan) member = found;
    const TunedPlan polished = search_order(structures_.plan_of(found, "placement"), true, effort);
    const bool better = offer(polished, "placement");
    // Members that stay far behind make room for the best.
    std::sort(pool_.begin(), pool_.end(), [](const Structure& a, const Structure& b) { return a.makespan < b.makespan; });
    if (turn_ % (2 * pool_.size()) == 0 && pool_.size() > 3) pool_.pop_back();
    return better;
  }

  const TuneRequest& request_;
  SearchContext context_;
  StructureSearch structures_;
  OrderSearch orders_;
  TuneResult result_;
  std::vector<Structure> pool_;
  std::size_t turn_ = 0;
  int round_ = 0;
  double smallest_layer_ = 0;
};

void check_start(const TuneRequest& request, const TunedPlan& plan) {
  int layers = 0;
  for (const int count : plan.partition) layers += count < 0 ? request.profile.size() + 1 : count;
  const auto refuse = [](const std::string& what) { throw InputError("tune: the plan to start from " + what); };
  if (layers != request.profile.size()) refuse("is not one of " + std::to_string(request.profile.size()) + " layers");
  if (plan.placement.ranks != request.devices || plan.order.ranks.size() != static_cast<std::size_t>(request.devices)) {
    refuse("is not one of " + std::to_string(request.devices) + " devices");
  }
  if (plan.placement.rank_of_stage.size() != plan.partition.size()) refuse("places other stages than it has");
  if (plan.placement.stages() > request.stage_limit()) {
    refuse("has more than the " + std::to_string(request.stage_limit()) + " stages allowed");
  }
  std::size_t forwards = 0;
  for (const ActionList& list : plan.order.ranks) {
    for (const Action& action : list) {
      if (action.stage < 0 || action.stage >= plan.placement.stages() || action.microbatch < 0 ||
          (is_compute(action.kind) && action.microbatch >= request.microbatches)) {
        refuse("has a workload of another stage or microbatch");
      }
      forwards += action.kind == Kind::forward ? 1 : 0;
    }
  }
  if (forwards != plan.partition.size() * static_cast<std::size_t>(request.microbatches)) {
    refuse("is not one of " + std::to_string(request.microbatches) + " microbatches");
  }
  const auto peaks = peak_units(make_graph(CostSums(request.profile), plan.partition, plan.placement, 1), plan.order);
  if (*std::max_element(peaks.begin(), peaks.end()) > request.cap) refuse("holds more than the memory cap");
}

void check(const TuneRequest& request) {
  validate(request.profile);
  if (request.devices < 1) throw InputError("tune: the number of devices must be 1 or more");
  if (request.microbatches < 1) throw InputError("tune: the number of microbatches must be 1 or more");
  if (!(request.cap > 0)) throw InputError("tune: the memory cap must be above 0");
  if (request.evaluations < 1 && !request.stop) throw InputError("tune: needs a number of iterations or a time limit");
  if (request.devices > request.profile.size()) {
    throw InputError("tune: " + std::to_string(request.devices) + " devices are more than the " +
                     std::to_string(request.profile.size()) + " layers of the model; use fewer devices");
  }
  if (request.stage_limit() < request.devices) {
    throw InputError("tune: at most " + std::to_string(request.most_stages) + " stages are fewer than the " +
                     std::to_string(request.devices) + " devices, which need one each; allow more stages or use fewer devices");
  }
  if (request.start) check_start(request, *request.start);
  frugal_structure(request);
}

}  // namespace

TuneResult tune(const TuneRequest& request) {
  check(request);
  return Tuner(request).run();
}

}  // namespace minipipe::schedules
