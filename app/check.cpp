// minipipe check and minipipe simulate: what can be known without training.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "app/session.hpp"
#include "core/comm/agreement.hpp"
#include "core/deck/rule_list.hpp"
#include "core/deck/rules.hpp"
#include "core/deck/shown_rows.hpp"
#include "core/io/chrome_trace.hpp"
#include "core/io/output_option.hpp"
#include "core/profile/machine.hpp"
#include "core/profile/profile_file.hpp"
#include "core/profile/use_profile.hpp"
#include "core/train/options.hpp"
#include "core/train/planned_traffic.hpp"
#include "core/train/preflight.hpp"
#include "core/train/replica_options.hpp"
#include "core/tune/plan_header.hpp"
#include "schedules/error.hpp"
#include "schedules/plan/csv.hpp"
#include "schedules/simulate/efficiency.hpp"

namespace minipipe::app {

namespace {

struct Subject {
  core::Deck deck;
  int stages = 1;
  bool speaks = true;
  schedules::Costs costs;
  bool profiled = false;
  double exchange_s = 0;  // of the stage that needs longest; in its costs
};

void use_profile(const Command& command, Subject& subject) {
  subject.profiled = !command.profile.empty();
  if (!subject.profiled) {
    subject.costs = core::emulated_costs(subject.deck, subject.stages);
    return;
  }
  if (subject.deck.emulate.enabled) {
    throw InputError("--profile " + command.profile +
                     ": emulate.enabled = true: the deck gives the costs itself; leave one of the two out");
  }
  const core::Profile profile = core::read_profile(command.profile);
  core::check_model(command.profile, profile, subject.deck);
  const std::string difference = core::machine_difference(command.profile, profile, core::this_machine());
  if (!difference.empty() && command.strict) throw InputError(difference + "; measure here, or leave --strict out");
  if (!difference.empty() && subject.speaks) std::cerr << "warning: " << difference << std::endl;
  subject.costs = core::profiled_costs(profile, subject.deck, subject.stages);
  subject.exchange_s = std::ranges::max(core::exchange_seconds(profile, subject.deck, subject.stages));
}

Subject load(const Command& command) {
  Subject subject;
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  subject.deck = load_deck(command, MPI_COMM_WORLD);
  subject.speaks = rank == 0;
  core::agree(MPI_COMM_WORLD, [&] {
    constexpr int most = 1000000;
    if (command.stages < 0 || command.stages > most || subject.deck.parallel.data > most / std::max(1, command.stages)) {
      throw InputError("--stages " + std::to_string(command.stages) +
                       ": must be at least 1, and with parallel.data = " + std::to_string(subject.deck.parallel.data) +
                       " replicas make " + std::to_string(most) + " ranks at most");
    }
    const int data = subject.deck.parallel.data;
    if (const int chunks = core::chunks_of(subject.deck); command.stages % chunks != 0) {
      throw InputError("--stages " + std::to_string(command.stages) + ": schedule.name = \"" + subject.deck.schedule.name +
                       "\" puts " + std::to_string(chunks) + " stages on each rank; give a multiple of that");
    }
    if (command.stages > 0) subject.deck.parallel.stages = command.stages;
    // On one rank, replicas and plans are planned with a rank for each of their pipelines', as are stages given here.
    const bool spread = data > 1 || subject.deck.schedule.name == "plan";
    const bool planned = command.stages > 0 || (ranks == 1 && spread);
    const int as_if = planned ? data * core::pipeline_ranks(subject.deck, subject.deck.parallel.stages) : ranks;
    core::check_rules(subject.deck, as_if);
    core::check_plan_header(subject.deck, as_if);
    subject.stages = core::stages_of(subject.deck, as_if);
    core::check_masks_of_run(subject.deck, subject.stages);
    use_profile(command, subject);
  });
  // No error: a deck for GPUs may be planned where there are none.
  const std::string problem = core::transport_problem(subject.deck);
  if (!problem.empty() && subject.speaks) std::cerr << "warning: " << problem << std::endl;
  return subject;
}

// How many ranks the planned run takes.
void print_ranks(int ranks, int replicas) {
  const auto all = static_cast<std::int64_t>(ranks) * replicas;
  std::printf("  needs %s (mpirun -n %lld)", core::plural(all, "rank").c_str(), static_cast<long long>(all));
  if (replicas > 1) std::printf(": %d replicas of %s", replicas, core::plural(ranks, "rank").c_str());
  std::printf("\n");
}

void print_schedule(const Subject& subject, const core::Preflight& result) {
  const auto options = core::schedule_options(subject.deck, subject.stages);
  const int ranks = schedules::placement_for(options).ranks;
  std::printf("schedule %s, %s, %s per update, %s simulated\n", options.name.c_str(),
              core::plural(subject.stages, "stage").c_str(), core::plural(options.window, "microbatch").c_str(),
              core::plural(result.updates, "update").c_str());
  print_ranks(ranks, subject.deck.parallel.data);
  std::printf("  makespan %.6f s, bubble share %.4f, utilisation %.4f\n", result.simulation.makespan,
              result.simulation.bubble_share, 1 - result.simulation.bubble_share);
  std::printf("  for comparison, 1F1B or GPipe on %s with equal stages: utilisation %.4f; PACI: %.4f times their throughput\n",
              core::plural(ranks, "rank").c_str(), schedules::flush_efficiency(ranks, options.window),
              schedules::bubble_speed_up(ranks, options.window));
  std::printf("%6s %14s %14s %10s %10s %10s\n", "stage", "in flight", "slots", "gap max", "gap bound", "gap mean");
  for (int s = 0; s < subject.stages; ++s) {
    std::printf("%6d %14lld %14lld %10lld %10lld %10.4f\n", s, static_cast<long long>(result.simulation.peak_in_flight[s]),
                static_cast<long long>(schedules::activation_slots(options, s)),
                static_cast<long long>(result.simulation.gap_max[s]),
                static_cast<long long>(schedules::version_gap_bound(options, s)), result.simulation.gap_mean[s]);
  }
  std::printf(
      "  in flight: most microbatches whose activations are kept at a time; slots: room for so many; gap: updates between\n"
      "  a microbatch's forward and backward, as simulated and at most\n");
}

using MemoryOfReplicas = std::vector<std::vector<core::PlannedMemory>>;  // by replica and stage

std::vector<std::uint64_t> peak_bytes(const std::vector<core::PlannedMemory>& ranks) {
  std::vector<std::uint64_t> bytes;
  for (const core::PlannedMemory& rank : ranks) bytes.push_back(rank.total());
  return bytes;
}

// `peaks`: by rank.
void print_memory(const Subject& subject, const MemoryOfReplicas& replicas, const std::vector<std::uint64_t>& peaks, bool all) {
  const bool several = replicas.size() > 1;
  std::printf("bytes by category:\n%8s%6s %14s %14s %14s %16s %14s %14s %14s\n", several ? "replica" : "", "stage",
              "parameters", "gradients", "optimizer", "stashed weights", "activations", "comm", "all");
  std::vector<std::size_t> totals;  // by replica and stage
  for (const auto& stages : replicas) {
    for (const core::PlannedMemory& memory : stages) totals.push_back(memory.total());
  }
  const std::size_t stages = static_cast<std::size_t>(subject.stages);
  const auto rows = core::shown_rows(totals.size(), all, core::extremes(totals));
  for (const std::size_t row : rows) {
    std::printf("%8s%6zu", several ? std::to_string(row / stages).c_str() : "", row % stages);
    for (const auto& [name, bytes] : replicas[row / stages][row % stages].categories()) {
      std::printf(" %*zu", name == "weight_versions" ? 16 : 14, bytes);
    }
    std::printf(" %14zu\n", totals[row]);
  }
  std::printf("%s", core::rows_left_out(totals.size(), rows.size(), ", and those with least and most bytes").c_str());
  const auto fullest = std::ranges::max_element(peaks);
  std::printf("fullest of %s: rank %td, %s\n", core::plural(std::ssize(peaks), "rank").c_str(), fullest - peaks.begin(),
              core::bytes_text(static_cast<double>(*fullest)).c_str());
}

void print_traffic(const std::vector<core::PlannedTraffic>& ranks, bool all_ranks) {
  if (ranks.size() == 1) return;
  std::printf("bytes sent per update:\n%6s", "rank");
  for (const auto& purpose : ranks.front()) std::printf(" %16s", purpose.first.c_str());
  std::printf(" %16s\n", "all");
  std::vector<double> sums;
  double mean = 0;
  for (const core::PlannedTraffic& rank : ranks) {
    double all = 0;
    for (const auto& purpose : rank) all += purpose.second;
    sums.push_back(all);
    mean += all / static_cast<double>(ranks.size());
  }
  const auto rows = core::shown_rows(ranks.size(), all_ranks, core::extremes(sums));
  for (const std::size_t r : rows) {
    std::printf("%6zu", r);
    for (const auto& purpose : ranks[r]) std::printf(" %16.0f", purpose.second);
    std::printf(" %16.0f\n", sums[r]);
  }
  std::printf("%s", core::rows_left_out(ranks.size(), rows.size(), ", and those that send least and most").c_str());
  std::printf("mean of the ranks: %s\n", core::bytes_text(mean).c_str());
}

// Replicas are alike, and so one of them is simulated, with what it sends to the others.
void print_exchange(const Subject& subject, double bytes) {
  if (!subject.profiled || subject.deck.parallel.data == 1) return;
  std::printf("the exchange among %d replicas (%s sent per update and rank at most) ", subject.deck.parallel.data,
              core::bytes_text(bytes).c_str());
  if (subject.exchange_s > 0) {
    std::printf("counts as part of the update, %.4f ms at most, as if no pass hid any of it\n", 1e3 * subject.exchange_s);
  } else {
    std::printf("is not in this time: the profile was measured on one rank and has no link; measure on two or more\n");
  }
}

// Prints the verdict; the exit status.
int verdict(const core::Preflight& result) {
  for (const std::string& problem : result.report.problems) std::cerr << problem << "\n";
  std::cout << (result.report.ok() ? "legal: every rule of the schedule holds" : "NOT legal") << std::endl;
  return result.report.ok() ? 0 : 3;
}

// Without a profile all times are those of [emulate]: where the deck does not emulate, nobody gave them.
void print_assumed_times(const Subject& subject) {
  if (subject.deck.emulate.enabled) return;
  const core::Deck::Emulate defaults;
  if (subject.deck.emulate == defaults) {
    std::printf("times: %g ms forward and %g ms backward per stage, the defaults of [emulate], ", defaults.forward_ms,
                defaults.backward_ms);
  } else {
    std::printf("times: those of the deck's [emulate], ");
  }
  std::printf("not this model's; --profile FILE gives real ones\n");
}

// What the costs mean for a long run. `exchanged`: bytes that a rank sends to other replicas per update, at most.
core::SteadyPrediction print_prediction(const Subject& subject, const std::vector<std::uint64_t>& bytes, double exchanged,
                                        bool all) {
  const auto steady = core::predict_steady(subject.deck, subject.stages, subject.costs);
  if (!subject.profiled) {
    print_assumed_times(subject);
    return steady;
  }
  std::printf("%6s %14s %14s %14s %14s   (ms)\n", "stage", "forward", "input grad.", "weight grad.", "update");
  for (int s = 0; s < subject.stages; ++s) {
    std::printf("%6d %14.4f %14.4f %14.4f %14.4f\n", s, 1e3 * subject.costs.forward[s], 1e3 * subject.costs.backward_input[s],
                1e3 * subject.costs.backward_weight[s], 1e3 * subject.costs.update[s]);
  }
  std::printf("predicted from the profile, steady state: %.6f s per update, %.1f tokens/s, bubble share %.4f\n",
              steady.step_time, steady.tokens_per_s, steady.bubble_share);
  print_exchange(subject, exchanged);
  const auto rows = core::shown_rows(bytes.size(), all, core::extremes(bytes));
  for (const std::size_t r : rows) std::printf("  rank %zu: %llu bytes\n", r, static_cast<unsigned long long>(bytes[r]));
  std::printf("%s", core::rows_left_out(bytes.size(), rows.size(), ", and those with least and most bytes").c_str());
  return steady;
}

// Milliseconds, under the names of the keys of [emulate] that make a stage sleep as long.
void print_stage_times(const schedules::Costs& costs) {
  const std::pair<const char*, const std::vector<double>*> lists[] = {{"stage_forward_ms", &costs.forward},
                                                                      {"stage_input_ms", &costs.backward_input},
                                                                      {"stage_weight_ms", &costs.backward_weight},
                                                                      {"stage_update_ms", &costs.update}};
  for (const auto& [key, seconds] : lists) {
    std::printf(",\"%s\":[", key);
    for (std::size_t s = 0; s < seconds->size(); ++s) std::printf("%s%.9g", s == 0 ? "" : ",", 1e3 * (*seconds)[s]);
    std::printf("]");
  }
  std::printf(",\"link_latency_ms\":%.9g", 1e3 * costs.latency);
}

// Actions per second of processor time of the simulator.
double simulator_speed(const core::Preflight& result) {
  std::size_t actions = 0;
  for (const auto& log : result.simulation.log.ranks) actions += log.size();
  const double speed = static_cast<double>(actions) / std::max(result.simulation_seconds, 1e-6);
  std::printf("simulator: %zu actions, %.3g per second of processor time\n", actions, speed);
  return speed;
}

void print_json(const Subject& subject, const core::Preflight& result, const core::SteadyPrediction& steady,
                const std::vector<std::uint64_t>& bytes, double exchanged, double speed) {
  std::printf("{\"makespan_s\":%.9g,\"step_time_s\":%.9g,\"tokens_per_s\":%.9g,\"bubble_share\":%.9g,\"peak_bytes\":[",
              result.simulation.makespan, steady.step_time, steady.tokens_per_s, steady.bubble_share);
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    std::printf("%s%llu", r == 0 ? "" : ",", static_cast<unsigned long long>(bytes[r]));
  }
  std::printf("]");
  std::printf(",\"exchange_bytes_per_update\":%.9g,\"exchange_ms\":%.9g", exchanged, 1e3 * subject.exchange_s);
  if (subject.profiled) print_stage_times(subject.costs);
  std::printf(",\"actions_per_s\":%.9g}\n", speed);
  std::fflush(stdout);
}

}  // namespace

int check(const Command& command) {
  const Subject subject = load(command);
  if (!subject.speaks) return 0;
  const auto result = core::preflight(subject.deck, subject.stages, 0, subject.costs);
  print_schedule(subject, result);
  const auto rows = command.all_ranks ? core::MaskRows::all : core::MaskRows::ends;
  std::printf("%s%s", core::in_flight_note(subject.deck).c_str(), core::masks_text(subject.deck, subject.stages, rows).c_str());
  const auto memory = core::planned_memory_by_replica(subject.deck, subject.stages);
  const auto peaks = peak_bytes(core::planned_memory_by_rank(subject.deck, subject.stages, memory));
  print_memory(subject, memory, peaks, command.all_ranks);
  const auto traffic = core::planned_traffic(subject.deck, subject.stages);
  print_traffic(traffic, command.all_ranks);
  print_prediction(subject, peaks, core::most_exchanged(traffic), command.all_ranks);
  return verdict(result);
}

int simulate(const Command& command) {
  if (!command.tune.profile.empty()) return simulate_profile(command);
  const Subject subject = load(command);
  core::agree(MPI_COMM_WORLD, [&] {
    if (!command.export_file.empty()) core::check_output("--export", command.export_file);
    if (!command.timeline.empty()) core::check_output("--timeline", command.timeline);
  });
  if (!subject.speaks) return 0;
  const auto result = core::preflight(subject.deck, subject.stages, command.updates, subject.costs);
  const auto bytes = core::planned_peak_bytes(subject.deck, subject.stages);
  const double exchanged = core::most_exchanged(core::planned_traffic(subject.deck, subject.stages));
  print_schedule(subject, result);
  const auto steady = print_prediction(subject, bytes, exchanged, false);
  if (!command.export_file.empty()) {
    std::ostringstream csv;
    schedules::write_csv(csv, result.simulation.log.plan());
    core::write_output("--export", command.export_file, csv.str());
  }
  if (!command.timeline.empty())
    core::write_output("--timeline", command.timeline, core::chrome_trace({{"simulated", &result.simulation.log}}));
  const double speed = simulator_speed(result);
  const int status = verdict(result);
  print_json(subject, result, steady, bytes, exchanged, speed);
  return status;
}

}  // namespace minipipe::app
