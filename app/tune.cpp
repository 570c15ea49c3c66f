// minipipe tune: plans for models whose layers differ.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/command_text.hpp"
#include "app/profile_costs.hpp"
#include "app/session.hpp"
#include "core/comm/agreement.hpp"
#include "core/comm/stop_signal.hpp"
#include "core/deck/parse.hpp"
#include "core/deck/rule_list.hpp"
#include "core/deck/rules.hpp"
#include "core/io/output_option.hpp"
#include "core/model/partition.hpp"
#include "core/profile/machine.hpp"
#include "core/profile/profile_file.hpp"
#include "core/profile/tuner_costs.hpp"
#include "core/train/options.hpp"
#include "core/tune/deck_profile.hpp"
#include "core/tune/plan_header.hpp"
#include "core/tune/profile_file.hpp"
#include "schedules/error.hpp"
#include "schedules/tune/asynchronous.hpp"
#include "schedules/tune/tuner.hpp"

namespace minipipe::app {

namespace {

using nlohmann::ordered_json;
using schedules::CostProfile;

// What is to be tuned: the layers' costs and how many devices and microbatches share them.
struct Subject {
  core::Deck deck;
  bool has_deck = false;
  CostProfile milliseconds;
  double update_ms = 0;  // an optimizer step of a stage; 0: not known
  std::string machine;
  int devices = 0;
  int microbatches = 0;
};

std::string with(const std::string& option, int value) { return option + " " + std::to_string(value); }

// Fills in what a file of minipipe profile says. Without a deck the model is the one that was measured, on as many devices.
void load_measured(const TuneCommand& tune, Subject& subject) {
  const core::Profile profile = core::read_profile(std::filesystem::path(tune.profile));
  if (subject.has_deck) {
    if (subject.deck.emulate.enabled) {
      throw InputError("--profile " + tune.profile +
                       ": emulate.enabled = true: the deck gives the costs itself; leave one of the two out");
    }
    core::check_model(tune.profile, profile, subject.deck);
  } else {
    subject.deck = core::read_deck(profile.deck, tune.profile);
    subject.devices = static_cast<int>(profile.ranks.size());
    subject.microbatches = static_cast<int>(subject.deck.train.microbatches);
  }
  const std::string difference = core::machine_difference(tune.profile, profile, core::this_machine());
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (!difference.empty() && rank == 0) std::cerr << "warning: " << difference << std::endl;
  const core::ModelConfig model = core::model_config(subject.deck);
  // Plans split the backward, PACI does not.
  subject.milliseconds = core::tuner_costs(profile, model, tune.schedule != "paci");
  subject.milliseconds.name = subject.deck.run.name;
  subject.machine = core::tuner_machine(profile);
  subject.update_ms = core::tuner_update(profile, model, std::max(1, tune.devices > 0 ? tune.devices : subject.devices));
}

Subject load(const TuneCommand& tune, const Command& command) {
  Subject subject;
  subject.has_deck = !command.deck.empty();
  int stages = 0;
  if (subject.has_deck) {
    subject.deck = load_deck(command, MPI_COMM_WORLD);
    core::validate(core::model_config(subject.deck), core::train_shape(subject.deck), 1);
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int as_if = tune.devices > 0 ? tune.devices : ranks;
    if (subject.deck.parallel.stages == 0 && tune.devices > 0) subject.deck.parallel.stages = tune.devices;
    stages = core::stages_of(subject.deck, as_if);
    subject.devices = std::max(1, stages / core::chunks_of(subject.deck));
    subject.microbatches = static_cast<int>(subject.deck.train.microbatches);
    if (tune.profile.empty()) {
      const auto costs = core::layer_costs(core::model_config(subject.deck), subject.deck.train.sequence);
      subject.milliseconds = core::deck_profile(subject.deck, stages, costs.blocks);
    }
    if (subject.deck.emulate.enabled) subject.machine = "";
  }
  if (is_measured(tune.profile)) {
    load_measured(tune, subject);
  } else if (!tune.profile.empty()) {
    const core::ProfileFile file = read_costs(tune.profile);
    subject.milliseconds = file.profile;
    subject.machine = file.machine;
    if (!subject.has_deck) {
      subject.devices = file.devices;
      subject.microbatches = file.microbatches;
    } else if (file.profile.size() != subject.deck.model.layers) {
      throw InputError("profile " + tune.profile + ": has " + std::to_string(file.profile.size()) +
                       " layers, but model.layers = " + std::to_string(subject.deck.model.layers));
    } else if (const std::string& pattern = subject.deck.model.pattern; !pattern.empty() && pattern != file.profile.pattern) {
      throw InputError("profile " + tune.profile + ": layers = \"" + file.profile.pattern + "\", but model.pattern = \"" +
                       pattern + "\"; the plan would be for other layers");
    }
  }
  if (tune.devices < 0) throw InputError(with("--devices", tune.devices) + ": must be at least 1");
  if (tune.microbatches < 0) throw InputError(with("--microbatches", tune.microbatches) + ": must be at least 1");
  if (tune.devices > 0) subject.devices = tune.devices;
  if (tune.microbatches > 0) subject.microbatches = tune.microbatches;
  if (subject.devices == 0) throw InputError("tune: the profile does not say how many devices; give --devices");
  if (subject.microbatches == 0) throw InputError("tune: the profile does not say how many microbatches; give --microbatches");
  return subject;
}

double in_ms(double ticks) { return ticks / schedules::kTicksPerMillisecond; }

// The whole command where there is a deck, else what a deck of this model needs.
void print_run(const Subject& subject, const Command& command, const std::vector<std::string>& overrides) {
  if (subject.has_deck) {
    std::cout << "run it with: mpirun -n " << std::int64_t{subject.devices} * subject.deck.parallel.data << " minipipe train "
              << deck_words(command, overrides) << "\n";
    return;
  }
  std::cout << "run it on " << core::plural(subject.devices, "rank") << " per replica with a deck of this model and:";
  for (const std::string& text : overrides) std::cout << " " << shell_word(text);
  std::cout << "\n";
}

// Stages of each device.
ordered_json by_device(const schedules::Placement& placement) {
  ordered_json rows = ordered_json::array();
  for (int d = 0; d < placement.ranks; ++d) rows.push_back(placement.stages_of(d));
  return rows;
}

// When a search ends: by a signal or, at a limit above 0, by the clock.
class SearchTime {
 public:
  // An iteration budget alone must give the same plan on any machine: no clock then unless one was asked for.
  explicit SearchTime(const TuneCommand& tune) : limit_(tune.time > 0 ? tune.time : tune.iterations > 0 ? 0 : 10) {}

  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }
  bool interrupted() const { return interrupt_.received() != 0; }
  bool over(double share = 1) const { return interrupted() || (limit_ > 0 && seconds() >= share * limit_); }

 private:
  core::StopSignal interrupt_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double limit_;
};

int tune_paci(const Subject& subject, const Command& command) {
  const TuneCommand& tune = command.tune;
  const SearchTime time(tune);
  schedules::AsynchronousRequest request;
  request.profile = subject.milliseconds;
  request.devices = subject.devices;
  request.update = subject.update_ms;
  request.most_gap = tune.gap;
  if (subject.has_deck) request.options = core::schedule_options(subject.deck, subject.devices);
  request.evaluations = tune.iterations;
  request.stop = [&] { return time.over(); };
  const auto result = schedules::tune_asynchronous(request);
  if (time.over()) std::cout << (time.interrupted() ? "interrupted" : "out of time") << ": the best partitions so far\n";
  std::printf("%8s %16s %10s %8s %10s  %s\n", "window", "ms/microbatch", "of bound", "gap max", "gap mean", "partition");
  ordered_json rows = ordered_json::array();
  for (const auto& plan : result.windows) {
    std::printf("%8lld %16.6f %10.4f %8lld %10.4f  %s\n", static_cast<long long>(plan.window), plan.time_per_microbatch,
                plan.time_per_microbatch / result.lower_bound, static_cast<long long>(plan.gap_max), plan.gap_mean,
                ordered_json(plan.partition).dump().c_str());
    rows.push_back({{"window", plan.window}, {"ms_per_microbatch", plan.time_per_microbatch}, {"gap_max", plan.gap_max}});
  }
  print_run(subject, command,
            {"schedule.name=paci", "train.microbatches=" + std::to_string(result.best.window),
             "schedule.partition=" + ordered_json(result.best.partition).dump(),
             "parallel.stages=" + std::to_string(subject.devices)});
  const ordered_json line = {{"schedule", "paci"},
                             {"window", result.best.window},
                             {"partition", result.best.partition},
                             {"ms_per_microbatch", result.best.time_per_microbatch},
                             {"lower_bound_ms", result.lower_bound},
                             {"gap_max", result.best.gap_max},
                             {"windows", rows}};
  std::cout << line.dump() << std::endl;
  return 0;
}

void write_plan(const std::string& path, const core::PlanHeader& header, const schedules::Plan& order) {
  std::ostringstream csv;
  core::write_plan_file(csv, header, order);
  core::write_output("--out", path, csv.str());
}

// Under a cap, a quarter of the search is spent without it, to tell what the cap costs.
constexpr double kShareWithoutCap = 0.25;

// The makespan that was found without the cap, at most the one under it.
double makespan_without_cap(schedules::TuneRequest request, const schedules::TuneResult& capped) {
  request.cap = std::numeric_limits<double>::infinity();
  request.evaluations = static_cast<std::int64_t>(std::ceil(kShareWithoutCap * static_cast<double>(request.evaluations)));
  request.progress = nullptr;
  return std::min(capped.best.makespan, schedules::tune(request).best.makespan);
}

int tune_flush(const Subject& subject, const Command& command) {
  const TuneCommand& tune = command.tune;
  const SearchTime time(tune);
  schedules::TuneRequest request;
  request.profile = schedules::in_ticks(subject.milliseconds);
  request.devices = subject.devices;
  request.microbatches = subject.microbatches;
  if (tune.cap > 0) request.cap = tune.cap;
  request.seed = tune.seed;
  request.evaluations = tune.iterations;
  request.most_stages = tune.stages;
  const bool capped = tune.cap > 0;
  double share = capped ? 1 - kShareWithoutCap : 1;
  request.stop = [&] { return time.over(share); };
  request.progress = [&](const schedules::TuneProgress& progress) {
    std::printf("%9.3f s %12lld evaluations  %-14s %12.0f ticks (%.2f ms), %.2f %% above the lower bound\n", time.seconds(),
                static_cast<long long>(progress.evaluations), progress.phase.c_str(), progress.makespan,
                in_ms(progress.makespan), 100 * (progress.makespan / progress.lower_bound - 1));
    std::fflush(stdout);
  };
  const auto result = schedules::tune(request);
  share = 1;
  const double uncapped = capped && !time.interrupted() ? makespan_without_cap(request, result) : 0;
  if (time.interrupted()) std::cout << "interrupted: the best plan so far\n";
  const auto& best = result.best;
  const auto graph =
      schedules::make_graph(schedules::CostSums(request.profile), best.partition, best.placement, request.microbatches);
  const auto simulation = schedules::simulate_graph(graph, best.order);
  ordered_json baselines = ordered_json::object();
  for (const auto& plan : result.baselines) {
    std::printf("  %-16s %12.0f ticks (%.2f ms), tuned is %.3f times as fast\n", plan.name.c_str(), plan.makespan,
                in_ms(plan.makespan), plan.makespan / best.makespan);
    baselines[plan.name] = whole(plan.makespan);
  }
  std::printf("%6s %14s %14s  %s\n", "device", "compute ticks", "peak units", "stages");
  for (int d = 0; d < best.placement.ranks; ++d) {
    std::printf("%6d %14.0f %14.0f  %s\n", d, simulation.compute[d], simulation.peak_units[d],
                ordered_json(best.placement.stages_of(d)).dump().c_str());
  }
  std::printf("makespan %.0f ticks (%.2f ms); lower bound %.0f ticks (%.2f ms); gap %.0f ticks, %.2f %%\n", best.makespan,
              in_ms(best.makespan), result.lower_bound, in_ms(result.lower_bound), best.makespan - result.lower_bound,
              100 * (best.makespan / result.lower_bound - 1));
  if (uncapped > 0) {
    std::printf("without the cap of %g units %.0f ticks (%.2f ms) were found: the cap costs %.2f %%\n", tune.cap, uncapped,
                in_ms(uncapped), 100 * (best.makespan / uncapped - 1));
  }
  if (!tune.out.empty()) {
    write_plan(tune.out, core::header_of(best, subject.milliseconds, subject.microbatches, subject.machine), best.order);
    auto overrides = subject.has_deck && tune.profile.empty()
                         ? core::plan_overrides(subject.deck, subject.milliseconds, best.partition, tune.out)
                         : core::plan_overrides(best.partition, tune.out);
    overrides.push_back("train.microbatches=" + std::to_string(subject.microbatches));
    if (subject.has_deck && subject.deck.schedule.name == "paci") {
      std::cout << "the deck's own schedule is paci: --schedule paci tunes its partition and window\n";
    }
    print_run(subject, command, overrides);
  }
  ordered_json line = {{"makespan_ticks", whole(best.makespan)}, {"lower_bound_ticks", whole(std::ceil(result.lower_bound))},
                       {"microbatches", request.microbatches},   {"partition", best.partition},
                       {"placement", by_device(best.placement)}, {"compute_ticks", whole(simulation.compute)},
                       {"peak_units", simulation.peak_units},    {"baselines", baselines},
                       {"evaluations", result.evaluations},      {"seconds", time.seconds()}};
  if (capped) line["cap_units"] = tune.cap;
  if (uncapped > 0) line["uncapped_ticks"] = whole(uncapped);
  std::cout << line.dump() << std::endl;
  return 0;
}

}  // namespace

int tune(const Command& command) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Subject subject;
  core::agree(MPI_COMM_WORLD, [&] {
    subject = load(command.tune, command);
    if (!command.tune.out.empty()) core::check_output("--out", command.tune.out);
  });
  if (rank != 0) return 0;
  const bool paci = command.tune.schedule == "paci";
  if (!paci && command.tune.schedule != "plan") {
    throw InputError("--schedule " + command.tune.schedule + ": use plan or paci");
  }
  return paci ? tune_paci(subject, command) : tune_flush(subject, command);
}

}  // namespace minipipe::app
