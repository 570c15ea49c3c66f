// minipipe bench: kernels and a training step as shares of the machine's own rates.
#include "core/bench/bench.hpp"

#include <iostream>

#include "app/session.hpp"
#include "core/comm/agreement.hpp"
#include "core/deck/rules.hpp"
#include "core/io/output_option.hpp"
#include "minipipe_version.hpp"
#include "schedules/error.hpp"

namespace minipipe::app {

int bench(const Command& command) {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const core::Deck deck = load_deck(command, MPI_COMM_WORLD);
  core::agree(MPI_COMM_WORLD, [&] {
    if (ranks > 1) {
      throw InputError("bench measures one process, not " + std::to_string(ranks) +
                       ": start it without mpirun; OMP_NUM_THREADS sets its threads");
    }
    if (deck.emulate.enabled) {
      throw InputError("emulate.enabled = true: an emulated run computes nothing that could be measured; set it to false");
    }
    if (deck.parallel.data > 1) {
      throw InputError("parallel.data = " + std::to_string(deck.parallel.data) +
                       ": bench measures one replica; add parallel.data=1 parallel.mode=ddp (and leave [sdp] out)");
    }
    core::check_rules(deck, ranks);
    core::check_repeat(command.repeat);
    if (!command.bench_json.empty()) core::check_output("--json", command.bench_json);
    if (!command.bench_out.empty()) core::check_output("--out", command.bench_out);
  });
  core::BenchReport report =
      core::run_bench(deck, command.repeat, [](const std::string& what) { std::cerr << "measuring: " << what << std::endl; });
  report.version = MINIPIPE_VERSION;
  report.git_hash = MINIPIPE_GIT_HASH;
  const std::string json = core::bench_json(report);
  if (!command.bench_out.empty()) core::write_bench(command.bench_out, report);
  if (!command.bench_json.empty()) core::write_output("--json", command.bench_json, json + "\n");
  std::cout << core::bench_table(report);
  if (command.bench_json.empty()) std::cout << json << "\n";
  std::cout << std::flush;
  return 0;
}

}  // namespace minipipe::app
