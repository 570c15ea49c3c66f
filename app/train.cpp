#include <iostream>

#include "app/session.hpp"
#include "app/standard_streams.hpp"
#include "app/token_source.hpp"
#include "core/comm/agreement.hpp"
#include "core/deck/print.hpp"
#include "core/deck/rules.hpp"
#include "core/train/preflight.hpp"
#include "core/train/replica_options.hpp"
#include "core/train/run_watchdog.hpp"
#include "core/train/trainer.hpp"
#include "core/tune/plan_header.hpp"
#include "minipipe_version.hpp"
#include "schedules/error.hpp"

namespace minipipe::app {

int train(const Command& command, core::Watchdog& watchdog) {
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (command.cases) {
    const core::SweepDeck file = load_sweep(command, MPI_COMM_WORLD);
    core::agree(MPI_COMM_WORLD, [&] {
      if (file.sweep.empty())
        throw InputError("--cases: deck " + command.deck + " has no block [sweep]; add one, or leave --cases out");
    });
    if (rank == 0) std::cout << (command.list ? core::list_cases(file) : std::to_string(file.sweep.cases()) + "\n");
    return 0;
  }
  core::Deck deck = load_deck(command, MPI_COMM_WORLD);
  if (command.print_deck) {
    if (rank == 0) std::cout << core::print_deck(deck);
    return 0;
  }
  survive_broken_pipes();
  core::watch_run(watchdog, deck, rank);
  TokenSources sources;
  core::agree(MPI_COMM_WORLD, [&] {
    core::check_rules(deck, ranks);
    core::check_transport(deck);
    core::check_plan_header(deck, ranks);
    core::check_masks_of_run(deck, core::stages_of(deck, ranks));
    core::check_schedule(deck, core::stages_of(deck, ranks));
  });
  if (rank == 0) {
    std::cout << core::precision_warning(deck) << core::delay_warning(deck, core::stages_of(deck, ranks))
              << core::in_flight_note(deck) << core::masks_text(deck, core::stages_of(deck, ranks)) << std::flush;
  }
  core::agree(MPI_COMM_WORLD, [&] { sources = open_sources(deck, deck.output.evaluation_interval > 0); });
  const std::string fitted = fit_evaluation(deck, sources);
  if (rank == 0) std::cout << fitted << std::flush;
  core::Trainer trainer(deck, MPI_COMM_WORLD, sources.sources(), {MINIPIPE_VERSION, MINIPIPE_GIT_HASH}, watchdog);
  return trainer.run();
}

}  // namespace minipipe::app
