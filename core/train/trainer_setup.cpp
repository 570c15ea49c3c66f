// What a run begins with: its folder, its parts, what it resumes from.
#include <filesystem>
#include <iostream>

#include "core/deck/parse.hpp"
#include "core/io/checkpoint.hpp"
#include "core/train/checkpointing.hpp"
#include "core/train/global_norm.hpp"
#include "core/train/options.hpp"
#include "core/train/replay.hpp"
#include "core/train/run_header.hpp"
#include "core/train/trace_attributes.hpp"
#include "core/train/trainer.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::core {

// A run goes on in its own folder. Resumed from a file of another run, it is a new one there: what the folder holds is moved
// away.
bool Trainer::continues_here() const {
  const std::filesystem::path wanted = deck_.run.resume;
  if (wanted == "latest") return true;
  std::error_code error;
  return !wanted.empty() &&
         std::filesystem::equivalent(wanted.parent_path().empty() ? "." : wanted.parent_path(), folder_.checkpoints(), error);
}

// Without a summary of all updates (the process was killed after its last checkpoint), the end of the run is still to be made.
bool Trainer::finished_before() const {
  if (first_update_ < deck_.run.steps) return false;
  int finished = place_.rank == 0 && continues_here() && says_done(folder_.summary(), first_update_) ? 1 : 0;
  check(MPI_Bcast(&finished, 1, MPI_INT, 0, comm_.get()), "deciding whether anything is to do");
  return finished != 0;
}

void Trainer::take_output() {
  if (place_.rank != 0) return;
  lock_ = take_output_folder(folder_.folder);
  if (!lock_->warning().empty()) std::cerr << "warning: " << lock_->warning() << std::endl;
}

// The last step of a start: what fails before it, for its input or for want of memory, leaves an earlier run's results alone.
// Here they are moved, and put back if there is no room for a new trace.
void Trainer::begin_output(std::int64_t fullest_bytes, const HostShare& share) {
  // Where there was no checkpoint to go on from, the run begins anew, and keeps what else is there.
  const bool continues = continues_here() && first_update_ > 0;
  MovedResults moved = continues ? move_results_beyond(folder_.folder, first_update_) : move_earlier_results(folder_.folder);
  try {
    trace_ = std::make_unique<TraceWriter>(folder_.trace(), trace_attributes(deck_, place_, build_, share), first_update_ > 0);
    if (first_update_ > 0) trace_->truncate_to(first_update_, logged_before_);
  } catch (const std::exception&) {
    const std::string left = moved.put_back();
    if (!left.empty()) std::cerr << "warning: " << left << std::endl;
    throw;
  }
  if (moved.moved_to()) {
    std::cout << (continues ? "results of updates after " + std::to_string(first_update_) : "results of an earlier run")
              << " were moved to " << moved.moved_to()->string() << std::endl;
  }
  std::cout << run_header(deck_, place_, fullest_bytes) << notes_ << std::flush;
}

void Trainer::set_up(const Sources& sources) {
  control_ = std::make_unique<Control>(comm_.get());
  const std::int64_t in_flight = schedules::activation_slots(schedule_options(deck_, place_.stages()), 0);
  std::vector<int> followers;
  for (int replica = 1; replica < place_.replicas; ++replica) followers.push_back(place_.rank_of(0, replica));
  stop_ = std::make_unique<StopRule>(
      deck_, comm_.get(), *control_, signal_, [this] { return clock(); }, in_flight, followers);
  pipeline_ = std::make_unique<Pipeline>(deck_, place_, edges_.get(), sources, [this] { return clock(); });
  if (deck_.train.clip == "global") set_global_norm(*pipeline_, comm_.get());
  load_replay();
}

void Trainer::load_replay() {
  if (deck_.schedule.replay.empty()) return;
  replay_ = read_replay(deck_.schedule.replay, place_.stages());
  for (int stage = 0; stage < place_.stages(); ++stage)
    replay_policy(*replay_, stage, 0, deck_.run.steps, deck_.train.microbatches);
}

void Trainer::restore() {
  std::string notes;
  std::string warning;
  const auto file = find_checkpoint(deck_.run.resume, "run.resume =", folder_.checkpoints(), &warning);
  if (file) {
    const CheckpointState state = open_checkpoint(*file, deck_, &notes);
    load_checkpoint(*file, *pipeline_);
    first_update_ = update_ = state.step;
    // Actions have the numbers that a replica gives its microbatches: on another grid the old ones would mean others.
    const std::int64_t done = update_ * deck_.train.microbatches;
    logged_before_ = done * read_deck(state.deck, file->string()).parallel.data == state.microbatches ? done : 0;
    elapsed_before_s_ = state.elapsed_s;
    notes = "resuming from " + file->string() + ", " + std::to_string(state.step) + " updates done\n" + notes;
  } else if (!deck_.run.resume.empty()) {
    warning +=
        "run.resume = \"latest\": no checkpoint in " + folder_.checkpoints().string() + ", the run starts from the beginning\n";
  }
  notes_ = warning + notes;
  pipeline_->start_at(update_ * deck_.train.microbatches, update_);
  if (place_.tells_progress()) progress_ = std::make_unique<Progress>(deck_, update_, tokens_per_update(deck_));
}

}  // namespace minipipe::core
