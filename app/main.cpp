#include <mpi.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <string>

#include "app/command.hpp"
#include "app/launcher.hpp"
#include "app/session.hpp"
#include "app/standard_streams.hpp"
#include "app/start_limit.hpp"
#include "app/threads.hpp"
#include "core/comm/abort_job.hpp"
#include "core/comm/agreement.hpp"
#include "core/comm/error_text.hpp"
#include "core/comm/nccl_transport.hpp"
#include "core/comm/watchdog.hpp"
#include "core/deck/help.hpp"
#ifdef MINIPIPE_DEVICE_FORMS
#include "core/device_forms/guard.hpp"
#endif
#include "schedules/error.hpp"

namespace {

using minipipe::app::Command;
using minipipe::core::Watchdog;

// Exit statuses: 0 done, 2 bad input, 3 failed while running, 75 stopped early with a checkpoint.
constexpr int status_input = 2;
constexpr int status_run = 3;

int run(const Command& command, bool speak, Watchdog& watchdog) {
  // What one rank does alone may take its time.
  const bool watched =
      command.verb == Command::Verb::train || command.verb == Command::Verb::profile || command.verb == Command::Verb::eval;
  std::optional<Watchdog::Pause> pause;
  if (!watched) pause.emplace(watchdog);
  switch (command.verb) {
    case Command::Verb::train:
      return minipipe::app::train(command, watchdog);
    case Command::Verb::profile:
      return minipipe::app::profile(command, watchdog);
    case Command::Verb::eval:
      return minipipe::app::evaluate(command, watchdog);
    case Command::Verb::bench:
      return minipipe::app::bench(command);
    case Command::Verb::check:
      return minipipe::app::check(command);
    case Command::Verb::simulate:
      return minipipe::app::simulate(command);
    case Command::Verb::tune:
      return minipipe::app::tune(command);
    case Command::Verb::prepare:
      if (speak) minipipe::data::prepare(command.prepare, std::cout);
      return 0;
    case Command::Verb::help_deck:
      if (speak) std::cout << minipipe::core::help_deck();
      return 0;
    case Command::Verb::help_deck_markdown:
      if (speak) std::cout << minipipe::core::help_markdown();
      return 0;
  }
  return status_run;
}

// Before Kokkos starts, where the user has not set them.
void set_defaults_of_kokkos(Command::Verb verb, bool speak) {
  constexpr int keep = 0;
  // What OpenMP does without it, too, but Kokkos would warn on standard output.
  setenv("OMP_PROC_BIND", "false", keep);
  const bool plans = verb == Command::Verb::check || verb == Command::Verb::simulate || verb == Command::Verb::tune ||
                     verb == Command::Verb::prepare || verb == Command::Verb::help_deck ||
                     verb == Command::Verb::help_deck_markdown;
  // It would also warn, on every rank, of more threads than cores: a command that plans computes nothing, and users who set the
  // number have their reasons.
  setenv("KOKKOS_DISABLE_WARNINGS", "ON", keep);
  if (plans) return;
  const std::string chosen = minipipe::app::choose_threads(MPI_COMM_WORLD);
  if (speak && !chosen.empty()) std::cerr << "minipipe: " << chosen << std::endl;
}

// Before HDF5 starts, where the user has not set it. Its locks fail on file systems that have none (NFS without its lock
// service), and where a notebook has the file open. Here the lock of the folder keeps writers apart, and what is read is not
// written to.
void set_defaults_of_hdf5() {
  constexpr int keep = 0;
  setenv("HDF5_USE_FILE_LOCKING", "FALSE", keep);
}

// Before CUDA starts, where the user has not set them. A message that NCCL waits for keeps its stream busy. Loading a kernel at
// its first call waits for all streams, so that ranks could wait for each other: all are loaded at the start. And streams that
// share a hardware queue wait for each other: there are to be as many as can be.
void set_defaults_of_cuda(const Command& command) {
  if (!minipipe::core::have_nccl || !minipipe::app::mentions(command, "nccl", MPI_COMM_WORLD)) return;
  constexpr int keep = 0;
  setenv("CUDA_MODULE_LOADING", "EAGER", keep);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", keep);
}

// Throws, too, where an error of the device has ended the run; that one has been told.
int status_with_kokkos_ended(int status) {
  try {
    Kokkos::finalize();
  } catch (const std::exception& error) {
    if (status == 0) std::cerr << "minipipe: " << minipipe::core::error_text(error) << std::endl;
    return status == 0 ? status_run : status;
  }
  return status;
}

// Why standard output did not get all that was printed; empty if it did. Of a failure before the last flush the reason is gone:
// one more byte asks for it. A network file system may only tell when a file is closed, a duplicate too.
std::string reason_of_lost_output() {
  const bool lost_before = !std::cout.flush() || std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0) return std::strerror(errno);
  if (lost_before) return std::putchar('\n') == EOF || std::fflush(stdout) != 0 ? std::strerror(errno) : "a write failed";
  const int duplicate = dup(STDOUT_FILENO);
  return duplicate >= 0 && close(duplicate) != 0 ? std::strerror(errno) : "";
}

// Results that were printed into a full disk are a failure of the run, on all ranks. Collective.
int status_with_output(int status, bool name_rank, int rank) {
  const std::string reason = reason_of_lost_output();
  int lost = reason.empty() ? 0 : 1;
  if (lost != 0) {
    std::cerr << "minipipe: " << (name_rank ? "rank " + std::to_string(rank) + ": " : "") << "standard output: " << reason
              << "; what was printed is not whole: make room, or send it elsewhere" << std::endl;
  }
  MPI_Allreduce(MPI_IN_PLACE, &lost, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return status == 0 && lost != 0 ? status_run : status;
}

}  // namespace

int main(int argc, char** argv) {
  minipipe::app::occupy_standard_streams();
  set_defaults_of_hdf5();
  // MPI's start and end wait for all ranks, of which one may be gone or stand still.
  Watchdog watchdog(minipipe::app::start_limit(), [] {
    return std::string("MPI starts or ends, or reads the deck, and a rank is missing; a job that needs longer for this sets ") +
           minipipe::app::start_limit_variable + " to more seconds, or to 0 for no limit";
  });
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const auto parsed = minipipe::app::parse_command_line(argc, argv, rank == 0);
  int status = parsed.status;
  if (!parsed.done) {
    // Without Kokkos, whose warnings would mix with what scripts read.
    const bool computes = !parsed.command.cases && !parsed.command.print_deck;
    bool started = false;
    try {
      if (computes) {
        set_defaults_of_kokkos(parsed.command.verb, rank == 0);
        set_defaults_of_cuda(parsed.command);
        Kokkos::initialize(argc, argv);  // throws where a build for GPUs finds none
        started = true;
#ifdef MINIPIPE_DEVICE_FORMS
        // Benchmarks use the same callbacks for themselves.
        if (parsed.command.verb != Command::Verb::bench) minipipe::core::device_forms::guard_kernel_memory();
#endif
      }
      minipipe::app::check_launcher(ranks);
      minipipe::app::check_start_limit();
      status = run(parsed.command, rank == 0, watchdog);
    } catch (const std::exception& error) {
      status = dynamic_cast<const minipipe::InputError*>(&error) != nullptr ? status_input : status_run;
      if (dynamic_cast<const minipipe::core::Agreed*>(&error) != nullptr) {
        // Every rank has this error: one prints, all end in order with the same status.
        if (rank == 0) std::cerr << "minipipe: " << error.what() << std::endl;
      } else {
        // This rank alone failed; the others wait for messages it will not send.
        std::cerr << "minipipe: " << (ranks > 1 ? "rank " + std::to_string(rank) + ": " : "")
                  << minipipe::core::error_text(error) << std::endl;
        if (ranks > 1) minipipe::core::abort_job(status);
      }
    }
    if (started) status = status_with_kokkos_ended(status);
  }
  status = status_with_output(status, ranks > 1, rank);
  MPI_Finalize();
  return status;
}
