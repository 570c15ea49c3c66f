#include "core/train/preflight.hpp"

#include <algorithm>

#include "core/comm/transport.hpp"
#include "core/deck/rule_list.hpp"
#include "core/linalg/gemm.hpp"
#include "core/model/planned_memory.hpp"
#include "core/parallel/replica_exchange.hpp"
#include "core/train/options.hpp"
#include "core/train/processor_time.hpp"
#include "core/train/stage_replicas.hpp"
#include "core/types/types.hpp"
#include "schedules/error.hpp"
#include "schedules/plan/communication.hpp"

namespace minipipe::core {

namespace {

// Of the messages next to a stage.
std::size_t edge_bytes(const Deck& deck, int stages, int stage) {
  const std::size_t message = static_cast<std::size_t>(message_floats(deck)) * sizeof(float);
  std::size_t bytes = 0;
  if (stage > 0) bytes += 2 * message * static_cast<std::size_t>(edge_slots(deck, stages, stage - 1));
  if (stage + 1 < stages) bytes += 2 * message * static_cast<std::size_t>(edge_slots(deck, stages, stage));
  return bytes;
}

// Of replicas [begin, end): by replica and stage.
std::vector<std::vector<PlannedMemory>> planned_memory_of(const Deck& deck, int stages, int begin, int end) {
  std::vector<std::vector<PlannedMemory>> result(static_cast<std::size_t>(end - begin));
  const auto layers = deck.emulate.enabled ? std::vector<StageLayers>() : stage_layers(deck, stages);
  for (int stage = 0; stage < stages; ++stage) {
    PlannedMemory memory;
    memory.comm = edge_bytes(deck, stages, stage);
    for (auto& replica : result) replica.push_back(memory);
    if (deck.emulate.enabled) continue;
    const ExchangeMemory messages = exchange_memory(deck.parallel.transport);
    StageReplicas replicas(stage_options(deck, layers, stage, begin), messages);
    for (int r = begin; r < end; ++r) {
      replicas.move_to(r);
      PlannedMemory& mine = result[r - begin].back();
      mine.stage = planned_memory(replicas.options(), replicas.layout());
      if (deck.parallel.data == 1) continue;
      const ExchangeSizes sizes = replicas.exchange();
      mine.comm += exchange_bytes(sizes.reduce_slot_floats, sizes.gather_slot_floats, messages);
    }
  }
  return result;
}

}  // namespace

std::int64_t steady_updates(bool asynchronous, int stages, std::int64_t window) {
  if (!asynchronous) return 4;
  const std::int64_t fill = (stages + window - 1) / window;
  constexpr std::int64_t enough_passes = 2000000;
  return std::min(4 + 8 * fill, std::max(enough_passes / window / stages, 2 + 2 * fill));
}

Preflight preflight(const Deck& deck, int stages, std::int64_t updates) {
  return preflight(deck, stages, updates, emulated_costs(deck, stages));
}

Preflight preflight(const Deck& deck, int stages, std::int64_t updates, const schedules::Costs& costs) {
  Preflight result;
  auto options = schedule_options(deck, stages);
  const std::int64_t window = deck.train.microbatches;
  // More updates than the run has would show what never happens. Where there are too many updates, or microbatches in one, for
  // a simulation, fewer have to do.
  const std::int64_t full = steady_updates(schedules::is_asynchronous(options.name), stages, window);
  const std::int64_t most = schedules::most_simulated_passes / window / stages;
  result.updates = updates > 0 ? updates : std::min(deck.run.steps, options.synchronous_updates + full);
  if (updates == 0 && result.updates > most) {
    options.synchronous_updates = std::min<std::int64_t>(options.synchronous_updates, 1);
    result.updates = std::min({deck.run.steps, options.synchronous_updates + full, std::max<std::int64_t>(2, most)});
  }
  schedules::require_simulable(options, result.updates, "lower train.microbatches, the number of stages or --updates");
  std::vector<std::int64_t> drains;
  const std::int64_t synchronous = options.synchronous_updates;
  if (schedules::is_asynchronous(options.name) && synchronous > 0 && synchronous < result.updates)
    drains.push_back(synchronous * window);
  const double begin = processor_seconds();
  result.simulation = schedules::simulate(options, costs, result.updates * window, drains);
  result.simulation_seconds = processor_seconds() - begin;
  schedules::CheckRange range;
  range.placement = schedules::placement_for(options);
  range.microbatches = result.updates * window;
  result.report = schedules::check(result.simulation.log, options, range);
  return result;
}

void check_schedule(const Deck& deck, int stages) {
  const Preflight result = preflight(deck, stages);
  if (!result.report.ok()) {
    throw RunError("schedule " + deck.schedule.name + " on " + plural(stages, "stage") +
                   " breaks its own rules: " + result.report.problems.front());
  }
  const auto placement = schedules::placement_for(schedule_options(deck, stages));
  schedules::prove_no_deadlock(schedules::with_communication(result.simulation.log.plan(), placement), placement);
}

std::string transport_problem(const Deck& deck) {
  try {
    require_transport(deck.parallel.transport);
  } catch (const InputError& error) {
    return error.what();
  }
  if (on_host && deck.parallel.staging == "device") {
    return "parallel.staging = \"device\": this minipipe computes on the host and has no device memory to hand on; use "
           "\"host\", or a build for GPUs (preset cuda)";
  }
  return "";
}

void check_transport(const Deck& deck) {
  if (const std::string problem = transport_problem(deck); !problem.empty()) throw InputError(problem);
}

std::string precision_warning(const Deck& deck) {
  if (precision_of(deck) == Precision::fp32 || deck.emulate.enabled || bf16_products() == Bf16Products::native) return "";
  return "warning: precision.compute = \"bf16\" has no products of its own in this build or on this processor (oneDNN and "
         "AVX512_BF16 or AMX are needed): they are computed in fp32 from copies, which is right but slower than \"fp32\"\n";
}

std::string delay_warning(const Deck& deck, int stages) {
  const auto options = schedule_options(deck, stages);
  if (!schedules::is_asynchronous(options.name) || options.synchronous_updates > 0 || deck.train.optimizer != "adamw")
    return "";
  const std::int64_t delay = schedules::gradient_delay_bound(options, 0);
  if (delay <= 1) return "";
  return "warning: under schedule " + options.name + " gradients of the first stage are up to " + std::to_string(delay) +
         " updates old, and AdamW bears that badly early in training; set schedule.synchronous_updates, or train.optimizer = "
         "\"muon\", or raise train.microbatches\n";
}

std::string in_flight_note(const Deck& deck) {
  const std::int64_t most = most_extra_in_flight(deck);
  if (deck.schedule.name != "paci" || deck.schedule.extra_in_flight <= most) return "";
  return "schedule.extra_in_flight = " + std::to_string(deck.schedule.extra_in_flight) + ": the pipe drains after every " +
         std::to_string(most + 1) + " microbatches, so that it has slots as for " + std::to_string(most) + "\n";
}

std::vector<std::pair<std::string, std::size_t>> PlannedMemory::categories() const {
  return {{"parameters", stage.parameters},           {"gradients", stage.gradients},     {"optimizer", stage.optimizer},
          {"weight_versions", stage.weight_versions}, {"activations", stage.activations}, {"comm", comm}};
}

std::vector<PlannedMemory> planned_memory_by_rank(const Deck& deck, int stages) {
  return planned_memory_by_rank(deck, stages, planned_memory_by_replica(deck, stages));
}

std::vector<PlannedMemory> planned_memory_by_rank(const Deck& deck, int stages,
                                                  const std::vector<std::vector<PlannedMemory>>& replicas) {
  const auto placement = schedules::placement_for(schedule_options(deck, stages));
  std::vector<PlannedMemory> ranks(static_cast<std::size_t>(placement.ranks) * replicas.size());
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
    for (int stage = 0; stage < stages; ++stage) {
      ranks[replica * placement.ranks + placement.rank_of(stage)] += replicas[replica][stage];
    }
  }
  return ranks;
}

std::vector<PlannedMemory> planned_memory_by_stage(const Deck& deck, int stages, int replica) {
  return planned_memory_of(deck, stages, replica, replica + 1).front();
}

std::vector<std::vector<PlannedMemory>> planned_memory_by_replica(const Deck& deck, int stages) {
  return planned_memory_of(deck, stages, 0, deck.parallel.data);
}

}  // namespace minipipe::core
