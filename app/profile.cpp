// minipipe profile: what the layers and links of a deck cost on these ranks.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "app/command_text.hpp"
#include "app/session.hpp"
#include "app/token_source.hpp"
#include "core/comm/agreement.hpp"
#include "core/deck/rule_list.hpp"
#include "core/deck/rules.hpp"
#include "core/io/output_option.hpp"
#include "core/profile/measure.hpp"
#include "core/profile/profile_file.hpp"
#include "core/train/run_watchdog.hpp"
#include "minipipe_version.hpp"
#include "schedules/error.hpp"

namespace minipipe::app {

namespace {

using core::LayerKind;

void print_times(const char* name, const core::LayerTimes& times, const std::vector<LayerKind>& kinds) {
  std::printf("%-16s %14.4f", name, 1e3 * times.embedding);
  for (const LayerKind kind : kinds) std::printf(" %14.4f", 1e3 * times.of(kind));
  std::printf(" %14.4f %14.4f\n", 1e3 * times.head, 1e3 * times.received);
}

void print(const core::Profile& profile) {
  const core::RankProfile mean = profile.mean();
  const auto kinds = profile.kinds();
  std::printf("mean of %s, ms per microbatch or update of one layer\n%-16s %14s",
              core::plural(std::ssize(profile.ranks), "rank").c_str(), "", "embedding");
  for (const LayerKind kind : kinds) std::printf(" %14s", core::name_of(kind));
  std::printf(" %14s %14s\n", "head", "message in");
  print_times("forward", mean.forward, kinds);
  print_times("backward", mean.backward, kinds);
  print_times("input gradient", mean.backward_input, kinds);
  print_times("weight gradient", mean.backward_weight, kinds);
  print_times("update", mean.update, kinds);
  std::printf("%-16s %14lld", "parameters", static_cast<long long>(profile.embedding.parameters));
  for (const LayerKind kind : kinds) {
    std::printf(" %14lld", static_cast<long long>(profile.of(kind).parameters));
  }
  std::printf(" %14lld\n", static_cast<long long>(profile.head.parameters));
  if (!profile.undetermined.empty()) {
    std::printf("  not told apart, charged to the first: %s\n", profile.undetermined.c_str());
  }
  std::printf("  timed stages differ from the sum of their layers by %.1f %% at most\n", 100 * mean.residual);
  if (mean.residual > 0.1) {
    std::printf("  warning: so large a difference means that something else used the machine; measure again when it is idle\n");
  }
  for (const LayerKind kind : kinds) {
    const auto parameters = static_cast<double>(profile.of(kind).parameters);
    std::printf("  update %.4f ns per parameter of a layer of kind %s\n", 1e9 * mean.update.of(kind) / parameters,
                core::name_of(kind));
  }
  if (profile.ranks.size() == 1) {
    std::printf("  links were not measured: one rank. They count as free; run with mpirun -n N to measure them.\n");
    return;
  }
  const core::LinkProfile& link = profile.link;
  std::printf("  message of %lld bytes: %.1f us to a waiting rank (send %.1f, take %.1f), 64 bytes %.1f us, %.0f MB/s\n",
              static_cast<long long>(profile.message_bytes), 1e6 * link.one_way, 1e6 * link.send, 1e6 * link.receive,
              1e6 * link.latency, 1e-6 * link.bytes_per_s);
}

// Where the deck leaves the number of stages to the ranks, one process is to plan for as many as were measured.
void print_next_steps(const Command& command, int ranks, const std::string& file) {
  const auto next = [&](const char* verb, const std::string& options, const char* what) {
    std::cout << "  minipipe " << verb << " " << deck_words(command) << " --profile " << shell_word(file) << options << "   # "
              << what << "\n";
  };
  const std::string number = std::to_string(ranks);
  std::cout << "next:\n";
  next("simulate", ranks > 1 ? " --stages " + number : "", "step time and memory of the deck's schedule");
  next("tune", (ranks > 1 ? " --devices " + number : "") + " --out plan.csv", "a plan for these costs");
  std::cout << std::flush;
}

}  // namespace

int profile(const Command& command, core::Watchdog& watchdog) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const core::Deck deck = load_deck(command, MPI_COMM_WORLD);
  core::watch_run(watchdog, deck, rank);
  TokenSources sources;
  const std::filesystem::path file = command.profile_out.empty() ? std::filesystem::path(deck.output.directory) / "profile.h5"
                                                                 : std::filesystem::path(command.profile_out);
  core::agree(MPI_COMM_WORLD, [&] {
    if (deck.emulate.enabled) {
      throw InputError("emulate.enabled = true: an emulated run computes nothing that could be measured; set it to false");
    }
    if (deck.parallel.data > 1) {
      throw InputError("parallel.data = " + std::to_string(deck.parallel.data) +
                       ": a profile is of one replica; add parallel.data=1 parallel.mode=ddp and start its ranks alone");
    }
    core::check_rules(deck, ranks);
    sources = open_sources(deck, false);
    if (rank != 0) return;
    std::error_code ignored;
    if (command.profile_out.empty()) std::filesystem::create_directories(deck.output.directory, ignored);
    core::check_output(command.profile_out.empty() ? "output.directory: profile" : "--out", file);
  });
  core::Profile result = core::measure_profile(deck, *sources.train, MPI_COMM_WORLD, [&] { watchdog.beat(); });
  result.version = MINIPIPE_VERSION;
  result.git_hash = MINIPIPE_GIT_HASH;
  core::agree(MPI_COMM_WORLD, [&] {
    if (rank == 0) core::write_profile(file, result);
  });
  if (rank == 0) {
    print(result);
    std::cout << "written to " << file.string() << "\n";
    print_next_steps(command, deck.parallel.stages == 0 ? ranks : 1, file.string());
  }
  return 0;
}

}  // namespace minipipe::app
