#include "core/train/trainer.hpp"

#include <iostream>

#include "core/comm/agreement.hpp"
#include "core/deck/print.hpp"
#include "core/io/checkpoint.hpp"
#include "core/train/checkpointing.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

Trainer::Trainer(const Deck& deck, MPI_Comm comm, const Sources& sources, const BuildInfo& build, Watchdog& watchdog)
    : deck_(deck),
      comm_(Communicator::duplicate(comm)),
      edges_(Communicator::duplicate(comm)),
      build_(build),
      sources_(sources),
      watchdog_(watchdog),
      place_(place_of_run(deck, comm_.rank(), comm_.size())),
      replicas_(Communicator::split(comm, place_.pipeline_rank(), place_.replica())),
      drains_(deck),
      versions_(place_.stages()) {
  check(MPI_Barrier(comm_.get()), "starting together");
  started_ = MPI_Wtime();
  folder_.folder = deck_.output.directory;
  agree(comm_.get(), [&] { take_output(); });
  agree(comm_.get(), [&] { set_up(sources); });
  watchdog_.beat();
  agree(comm_.get(), [&] { pipeline_->join_stages(); });
  agree(comm_.get(), [&] { pipeline_->join_replicas(replicas_.get()); });
  watchdog_.beat();
  agree(comm_.get(), [&] { restore(); });
  watchdog_.beat();
  nothing_to_do_ = finished_before();
  if (nothing_to_do_) return;
  const HostShare share = host_share(comm_.get());
  auto fullest = static_cast<std::int64_t>(memory_here().total());
  check(MPI_Allreduce(MPI_IN_PLACE, &fullest, 1, MPI_INT64_T, MPI_MAX, comm_.get()), "comparing the memory of ranks");
  agree(comm_.get(), [&] {
    if (place_.rank == 0) begin_output(fullest, share);
  });
  agree(comm_.get(), [&] { owes_evaluation_ = place_.rank == 0 && misses_evaluation(); });
  check(MPI_Bcast(&owes_evaluation_, 1, MPI_CXX_BOOL, 0, comm_.get()), "deciding what is to be made up for");
}

Trainer::~Trainer() = default;

double Trainer::clock() const { return MPI_Wtime() - started_; }

// The seconds since the last lap went to this purpose, so the purposes add up to the whole. Returns them.
double Trainer::lap(double& purpose) {
  const double now = clock();
  const double seconds = now - lap_;
  purpose += seconds;
  lap_ = now;
  return seconds;
}

int Trainer::run() {
  if (nothing_to_do_) {
    if (place_.rank == 0) {
      std::cout << "nothing to do: " << update_ << " of " << deck_.run.steps
                << " updates are done (results: " << folder_.summary().string() << ")" << std::endl;
    }
    return 0;
  }
  lap(seconds_.other);
  if (owes_evaluation_) evaluate();
  bool stopping = evaluation_cut_ > 0 && stop_decided();
  while (update_ < deck_.run.steps && !stopping) {
    train_segment();
    if (drains_.evaluates(update_)) evaluate();
    stopping = stop_decided() && !complete();
    if (stopping || drains_.writes_checkpoint(update_)) write_checkpoint();
  }
  finish();
  return stopping ? 75 : 0;
}

void Trainer::write_checkpoint() {
  if (deck_.emulate.enabled) return;
  CheckpointState state;
  state.step = update_;
  state.microbatches = update_ * microbatches_per_update(deck_);
  state.tokens = update_ * tokens_per_update(deck_);
  state.seed = static_cast<std::uint64_t>(deck_.run.seed);
  state.stages = place_.stages();
  state.schedule = deck_.schedule.name;
  state.deck = print_deck(deck_, false);
  state.git_hash = build_.git_hash;
  state.elapsed_s = elapsed_before_s_ + clock();
  // The watchdog runs on: a peer that dies while all write must end the job too. So run.watchdog has to be longer than a
  // checkpoint takes.
  watchdog_.beat();
  agree(comm_.get(), [&] {
    try {
      save_checkpoint(comm_.get(), checkpoint_path(folder_.checkpoints(), update_), *pipeline_, state);
    } catch (const RunError& error) {
      throw RunError(std::string(error.what()) +
                     "; make room there if the disk is full, and run again with run.resume=latest to go on from the last "
                     "checkpoint");
    }
    if (place_.rank == 0) keep_last(folder_.checkpoints(), deck_.checkpoint.keep);
  });
  watchdog_.beat();
  lap(seconds_.checkpoint);
}

bool Trainer::stop_decided() {
  stop_->request_if_due();
  control_->finish();
  int stopping = 0;
  if (place_.rank == 0) {
    stopping = control_->poll_stop_request() ? 1 : 0;
    if (stopping && !complete()) {
      std::cout << stop_->reason() << ": stopping after update " << update_
                << (deck_.emulate.enabled ? "; an emulated run has no checkpoints, so it would begin anew"
                                          : " with a checkpoint; run again with run.resume=latest to go on");
      if (stop_->cut() && !deck_.emulate.enabled) {
        std::cout << "\nthe pipe was drained where the deck does not drain it, so the resumed run will differ from one that "
                     "never stopped "
                     "(raise run.grace or lower checkpoint.interval to avoid that)";
      }
      if (evaluation_cut_ > 0) tell_cut_evaluation();
      std::cout << std::endl;
    }
  }
  check(MPI_Bcast(&stopping, 1, MPI_INT, 0, comm_.get()), "deciding whether to stop");
  lap(seconds_.output);
  return stopping != 0;
}

}  // namespace minipipe::core
