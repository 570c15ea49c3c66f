// minipipe simulate --profile FILE.json: the stated cases of a profile, or one schedule at any size.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/profile_costs.hpp"
#include "app/session.hpp"
#include "core/comm/agreement.hpp"
#include "core/deck/rule_list.hpp"
#include "core/train/processor_time.hpp"
#include "core/tune/scaled_profile.hpp"
#include "schedules/error.hpp"
#include "schedules/generate/generate.hpp"
#include "schedules/graph/list_scheduler.hpp"
#include "schedules/simulate/steady_step.hpp"

namespace minipipe::app {

namespace {

using nlohmann::ordered_json;

// The order a stated case was timed with.
schedules::Plan order_of(const core::ProfileCase& stated, const schedules::UpdateGraph& graph) {
  schedules::Plan order;
  if (stated.schedule == "1f1b") {
    schedules::ScheduleOptions options;
    options.name = "1f1b";
    options.stages = graph.placement.stages();
    options.window = graph.microbatches;
    return schedules::generate_plan(options, graph.placement, 0, 1);
  }
  schedules::ListScheduler().run(graph, {}, &order);
  return order;
}

// Speed of the graph simulator, which the tuner asks for every plan.
double actions_per_second(const schedules::UpdateGraph& graph, const schedules::Plan& order) {
  std::size_t actions = 0;
  for (const auto& list : order.ranks) actions += list.size();
  schedules::OrderEvaluator evaluator;
  const double begin = core::processor_seconds();
  double seconds = 0, runs = 0;
  for (; seconds < 0.02; seconds = core::processor_seconds() - begin) {
    for (int i = 0; i < 16; ++i, ++runs) evaluator.makespan(graph, order);
  }
  return static_cast<double>(actions) * runs / seconds;
}

int simulate_cases(const core::ProfileFile& file) {
  const schedules::CostSums sums(schedules::in_ticks(file.profile));
  bool exact = true;
  double speed = 0;
  ordered_json rows = ordered_json::array();
  std::printf("%-24s %14s %14s %8s  %s\n", "case", "simulated", "stated", "bubble", "compute by device (stated)");
  for (const core::ProfileCase& stated : file.cases) {
    const auto graph = schedules::make_graph(sums, stated.partition, stated.placement, file.microbatches);
    const auto order = order_of(stated, graph);
    const auto result = schedules::simulate_graph(graph, order);
    speed = std::max(speed, actions_per_second(graph, order));
    const bool same = (!stated.makespan_ticks || *stated.makespan_ticks == result.makespan) &&
                      (stated.compute_ticks.empty() || stated.compute_ticks == result.compute);
    exact = exact && same;
    std::printf("%-24s %14.0f %14s %7.2f%% ", stated.name.c_str(), result.makespan,
                stated.makespan_ticks ? std::to_string(whole(*stated.makespan_ticks)).c_str() : "-", 100 * result.bubble_share);
    for (std::size_t d = 0; d < result.compute.size(); ++d) {
      std::printf(" %.0f", result.compute[d]);
      if (d < stated.compute_ticks.size()) std::printf(" (%.0f)", stated.compute_ticks[d]);
    }
    std::printf("%s\n", same ? "" : "  DIFFERS");
    ordered_json row = {{"name", stated.name}, {"simulated_ticks", whole(result.makespan)}};
    row["stated_ticks"] = stated.makespan_ticks ? ordered_json(whole(*stated.makespan_ticks)) : ordered_json();
    row["compute_ticks"] = whole(result.compute);
    row["stated_compute_ticks"] = whole(stated.compute_ticks);
    row["peak_units"] = result.peak_units;
    row["bubble_share"] = result.bubble_share;
    row["same"] = same;
    rows.push_back(row);
  }
  std::printf("graph simulator: %.3g actions per second of processor time\n", speed);
  const ordered_json line = {{"profile", file.profile.name}, {"cases", rows}, {"same", exact}, {"actions_per_s", speed}};
  std::cout << line.dump() << std::endl;
  return exact ? 0 : 3;
}

schedules::ScheduleOptions options_of(const SimulateSize& size, const core::ProfileFile& file) {
  schedules::ScheduleOptions options;
  options.name = size.schedule;
  if (options.name == "plan") throw InputError("--schedule plan: a plan runs with a deck; give a schedule by name");
  const int devices = size.devices > 0 ? size.devices : file.devices;
  const int microbatches = size.microbatches > 0 ? size.microbatches : file.microbatches;
  if (devices < 1) throw InputError("simulate: the profile does not say how many devices; give --devices");
  if (microbatches < 1) throw InputError("simulate: the profile does not say how many microbatches; give --microbatches");
  options.chunks = options.name == "interleaved" ? size.chunks : options.name == "zb-v" ? 2 : 1;
  constexpr int most = 100000, most_microbatches = 1000000;
  if (devices > most || options.chunks < 1 || options.chunks > most / devices) {
    throw InputError("--devices " + std::to_string(devices) + ", --chunks " + std::to_string(options.chunks) +
                     ": must be 1 or more, and " + std::to_string(most) + " stages at most");
  }
  if (microbatches > most_microbatches) {
    throw InputError("--microbatches " + std::to_string(microbatches) + ": must be 1 to " + std::to_string(most_microbatches));
  }
  // The partition compares all pairs of layers, and looks at each layer for each device.
  constexpr std::int64_t most_layers = 20000, most_places = 4000000;
  const std::int64_t layers = size.layers > 0 ? size.layers : file.profile.size();
  if (layers > std::min(most_layers, most_places / devices)) {
    throw InputError("--layers " + std::to_string(layers) + " on --devices " + std::to_string(devices) + ": must be " +
                     std::to_string(most_layers) + " at most, and layers times devices " + std::to_string(most_places) +
                     " at most");
  }
  options.stages = devices * options.chunks;
  options.window = microbatches;
  schedules::validate(options);
  return options;
}

int simulate_schedule(const core::ProfileFile& file, const SimulateSize& size) {
  const auto options = options_of(size, file);
  const core::ProfileFile model = core::scaled(file, {size.layers, size.width, size.sequence});
  const auto partition = schedules::min_max_partition(model.profile, options.stages);
  const auto costs = core::stage_costs(model, partition, size.replicas);
  const int devices = options.stages / options.chunks;
  const double begin = core::processor_seconds();
  const schedules::SteadyStep step = schedules::steady_step(options, costs);
  const double speed = static_cast<double>(step.actions) / std::max(1e-6, core::processor_seconds() - begin);
  const double exchange = *std::max_element(costs.update.begin(), costs.update.end());
  const double sequences = static_cast<double>(schedules::effective_window(options)) * size.replicas;
  const double tokens = 1e3 * sequences * model.growth.sequence / step.time / devices / size.replicas;
  std::printf("%s, %s: %s x %s, %s, %s, %s, width %.0f, sequence %.0f\n", file.profile.name.c_str(), options.name.c_str(),
              core::plural(devices, "device").c_str(), core::plural(size.replicas, "replica").c_str(),
              core::plural(options.stages, "stage").c_str(), core::plural(options.window, "microbatch").c_str(),
              core::plural(model.profile.size(), "layer").c_str(), model.growth.width, model.growth.sequence);
  std::printf("  %.3f ms per update; passes take %.4f of the devices' time, passes and exchanges %.4f\n", step.time,
              step.pass_share, step.busy_share);
  std::printf("  longest exchange of gradients %.3f ms, a message between stages %.4f ms\n", exchange, costs.latency);
  if (tokens > 0) std::printf("  %.1f tokens/s per device, one sequence per microbatch\n", tokens);
  std::printf("  %lld actions simulated, %.3g per second of processor time\n", static_cast<long long>(step.actions), speed);
  ordered_json line = {{"profile", file.profile.name},
                       {"schedule", options.name},
                       {"devices", devices},
                       {"replicas", size.replicas},
                       {"stages", options.stages},
                       {"microbatches", options.window},
                       {"layers", model.profile.size()},
                       {"width", model.growth.width},
                       {"sequence", model.growth.sequence},
                       {"step_ms", step.time},
                       {"pass_share", step.pass_share},
                       {"busy_share", step.busy_share},
                       {"exchange_ms", exchange},
                       {"link_ms", costs.latency},
                       {"tokens_per_s_per_device", tokens},
                       {"peak_in_flight", *std::max_element(step.peak_in_flight.begin(), step.peak_in_flight.end())},
                       {"gap_max", step.gap_max},
                       {"actions", step.actions},
                       {"actions_per_s", speed}};
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace

int simulate_profile(const Command& command) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const SimulateSize& size = command.size;
  core::ProfileFile file;
  core::agree(MPI_COMM_WORLD, [&] {
    file = read_costs(command.tune.profile);
    if (file.cases.empty() && size.schedule.empty()) {
      throw InputError("profile " + command.tune.profile +
                       ": has no cases to simulate; name a --schedule, or make a plan with minipipe tune --profile");
    }
  });
  if (rank != 0) return 0;
  return size.schedule.empty() ? simulate_cases(file) : simulate_schedule(file, size);
}

}  // namespace minipipe::app
