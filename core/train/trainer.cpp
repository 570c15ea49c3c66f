#include "core/train/trainer.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "core/comm/agreement.hpp"
#include "core/comm/host_share.hpp"
#include "core/deck/parse.hpp"
#include "core/deck/print.hpp"
#include "core/deck/rules.hpp"
#include "core/io/checkpoint.hpp"
#include "core/train/checkpointing.hpp"
#include "core/train/gated_policy.hpp"
#include "core/train/gather.hpp"
#include "core/train/global_norm.hpp"
#include "core/train/mean_loss.hpp"
#include "core/train/options.hpp"
#include "core/train/replay.hpp"
#include "core/train/trace_attributes.hpp"
#include "schedules/check/checker.hpp"
#include "schedules/check/versions.hpp"
#include "schedules/error.hpp"
#include "schedules/policy/rank_list.hpp"

namespace minipipe::core {

Trainer::Trainer(const Deck& deck, MPI_Comm comm, const Sources& sources, const BuildInfo& build)
    : deck_(deck),
      comm_(Communicator::duplicate(comm)),
      edges_(Communicator::duplicate(comm)),
      build_(build),
      sources_(sources),
      place_(place_of_run(deck, comm_.rank(), comm_.size())),
      replicas_(Communicator::split(comm, place_.pipeline_rank(), place_.replica())),
      drains_(deck),
      versions_(place_.stages()) {
  check(MPI_Barrier(comm_.get()), "starting together");
  started_ = MPI_Wtime();
  agree(comm_.get(), [&] { open_output(); });
  agree(comm_.get(), [&] { set_up(sources); });
  agree(comm_.get(), [&] { pipeline_->join_stages(); });
  agree(comm_.get(), [&] { pipeline_->join_replicas(replicas_.get()); });
  agree(comm_.get(), [&] { restore(); });
  if (place_.rank == 0) std::cout << notes_ << std::flush;
  const HostShare share = host_share(comm_.get());
  agree(comm_.get(), [&] {
    if (place_.rank != 0) return;
    trace_ = std::make_unique<TraceWriter>(folder_.trace(), trace_attributes(deck_, place_, build_, share), first_update_ > 0);
    if (first_update_ > 0) trace_->truncate_to(first_update_, logged_before_);
  });
}

Trainer::~Trainer() = default;

double Trainer::clock() const { return MPI_Wtime() - started_; }

// A run goes on in its own folder. Resumed from a file of another run, it is a new one there: what the folder holds is moved
// away.
bool Trainer::continues_here() const {
  const std::filesystem::path wanted = deck_.run.resume;
  if (wanted == "latest") return true;
  std::error_code error;
  return !wanted.empty() &&
         std::filesystem::equivalent(wanted.parent_path().empty() ? "." : wanted.parent_path(), folder_.checkpoints(), error);
}

void Trainer::open_output() {
  folder_.folder = deck_.output.directory;
  if (place_.rank != 0) return;
  folder_ = prepare_output_folder(deck_.output.directory, continues_here());
  if (folder_.moved_to) std::cout << "results of an earlier run were moved to " << folder_.moved_to->string() << std::endl;
}

void Trainer::set_up(const Sources& sources) {
  control_ = std::make_unique<Control>(comm_.get());
  const std::int64_t in_flight = schedules::activation_slots(schedule_options(deck_, place_.stages()), 0);
  std::vector<int> followers;
  for (int replica = 1; replica < place_.replicas; ++replica) followers.push_back(place_.rank_of(0, replica));
  stop_ = std::make_unique<StopRule>(
      deck_, *control_, signal_, [this] { return clock(); }, in_flight, followers);
  watchdog_ = std::make_unique<Watchdog>(deck_.run.watchdog, [rank = place_.rank, limit = deck_.run.watchdog] {
    return "rank " + std::to_string(rank) + ": nothing has moved for run.watchdog = " + std::to_string(limit) +
           " s: a peer is gone or a schedule waits for ever; ending the job\n";
  });
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

bool Trainer::asynchronous_now(std::int64_t update) const {
  return schedules::is_asynchronous(deck_.schedule.name) && update >= deck_.schedule.synchronous_updates;
}

std::map<int, std::unique_ptr<schedules::Policy>> Trainer::policies_for(std::int64_t first_update,
                                                                        std::int64_t end_update) const {
  std::map<int, std::unique_ptr<schedules::Policy>> policies;
  if (replay_) {
    for (const int stage : place_.local_stages()) {
      policies[stage] = replay_policy(*replay_, stage, first_update, end_update, deck_.train.microbatches);
    }
    return policies;
  }
  const auto options = schedule_options(deck_, place_.stages());
  for (int rank = 0; rank < place_.placement.ranks; ++rank) {
    if (place_.one_process() || rank == place_.pipeline_rank())
      policies.merge(schedules::make_rank_policies(options, place_.placement, rank));
  }
  if (place_.replicas > 1 && place_.has(0)) {
    policies.at(0) = std::make_unique<GatedPolicy>(std::move(policies.at(0)), *stop_);
  }
  return policies;
}

int Trainer::run() {
  seconds_.other = clock();
  bool stopping = false;
  while (update_ < deck_.run.steps && !stopping) {
    train_segment();
    if (drains_.evaluates(update_)) evaluate();
    stopping = stop_decided() && update_ < deck_.run.steps;
    if (stopping || drains_.writes_checkpoint(update_)) write_checkpoint();
  }
  finish();
  return stopping ? 75 : 0;
}

void Trainer::train_segment() {
  const std::int64_t window = deck_.train.microbatches;
  const std::int64_t first = update_;
  const std::int64_t end = drains_.next(first);
  control_->begin_segment(++segment_);
  stop_->begin_segment(!asynchronous_now(first), first * window);
  const double arrived = clock();
  check(MPI_Barrier(comm_.get()), "starting a segment together");
  const double begin = clock();
  seconds_.output += begin - arrived;
  losses_.clear();
  loss_sums_.clear();
  losses_reported_ = first;

  std::vector<schedules::StageSeconds> before;
  for (const LocalStage& stage : pipeline_->stages()) before.push_back(stage.executor->seconds());
  const auto poll = [&](bool moved) -> std::optional<std::int64_t> {
    poll_idle(moved);
    if (moved) take_losses();
    return stop_->poll(pipeline_->stages().front().executor->state());
  };
  pipeline_->run_segment(policies_for(first, end), end * window, poll);
  take_losses();
  const double drained = clock();
  wait_for_all();
  const double training_s = clock() - begin;

  update_ = pipeline_->stages().front().executor->state().updates;
  double compute = 0;
  double update = 0;
  double send = 0;
  double wait = 0;
  double exchange = 0;
  for (std::size_t s = 0; s < before.size(); ++s) {
    const auto& now = pipeline_->stages()[s].executor->seconds();
    compute += now.compute - before[s].compute;
    update += now.update - before[s].update;
    send += now.send - before[s].send;
    wait += now.wait_input - before[s].wait_input;
    exchange += now.exchange - before[s].exchange;
  }
  // Several stages on one thread wait for each other's work, too: there, waiting is what the other purposes leave, and none of
  // it is told apart.
  if (before.size() > 1) exchange = 0;
  wait = before.size() == 1 ? wait + begin + training_s - drained : training_s - compute - update - send;
  seconds_.training += training_s;
  seconds_.compute += compute;
  seconds_.update += update;
  seconds_.send += send;
  seconds_.wait_input += wait;
  seconds_.exchange += exchange;
  training_tokens_ += (update_ - first) * tokens_per_update(deck_);

  const double report_begin = clock();
  report_segment(first, training_s);
  seconds_.output += clock() - report_begin;
}

void Trainer::poll_idle(bool moved) {
  if (moved) {
    nap_.reset();
    watchdog_->beat();
  } else {
    nap_.idle();
  }
}

// On ranks of a last stage: what the losses of finished updates are, for the user and for the trace.
void Trainer::take_losses() {
  if (!place_.has_last_stage()) return;
  LocalStage& last = *std::find_if(pipeline_->stages().begin(), pipeline_->stages().end(),
                                   [&](const LocalStage& stage) { return stage.index + 1 == place_.stages(); });
  const std::int64_t updates = last.executor->state().updates;
  if (updates == losses_reported_) return;
  if (last.model) {
    for (const MicrobatchLoss& loss : last.model->take_losses()) {
      if (!std::isfinite(loss.loss)) {
        throw RunError("the loss of microbatch " + std::to_string(loss.microbatch) + " (update " +
                       std::to_string(loss.microbatch / microbatches_per_update(deck_) + 1) +
                       ") is not finite; lower train.learning_rate, raise train.warmup_steps or set train.clip, and resume "
                       "from the last checkpoint");
      }
      losses_.push_back(loss);
      loss_sums_[loss.microbatch / microbatches_per_update(deck_)] += loss.loss;
    }
  }
  for (; losses_reported_ < updates; ++losses_reported_) {
    const auto sum = loss_sums_.extract(losses_reported_);
    const double loss = sum.empty() ? 0 : sum.mapped();
    if (progress_) progress_->update(losses_reported_ + 1, loss / static_cast<double>(deck_.train.microbatches), clock());
  }
}

// All ranks leave together. Polling with naps keeps the cores free for ranks that still compute.
void Trainer::wait_for_all() {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm_.get(), &request), "waiting for all ranks");
  for (int done = 0; done == 0;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "waiting for all ranks");
    if (done == 0) nap_.idle();
  }
  nap_.reset();
  watchdog_->beat();
}

void Trainer::report_segment(std::int64_t first_update, double training_s) {
  const auto report = SegmentReport::collect(comm_.get(), LocalReport::take(*pipeline_, std::move(losses_)));
  losses_ = {};
  agree(comm_.get(), [&] {
    if (place_.rank == 0) record_segment(report, first_update, training_s);
  });
}

void Trainer::record_segment(const SegmentReport& report, std::int64_t first_update, double training_s) {
  TraceBasis basis;
  basis.window = microbatches_per_update(deck_);
  basis.tokens_per_update = tokens_per_update(deck_);
  basis.time_offset_s = elapsed_before_s_;
  const LearningRateOptions rate = {.peak = deck_.train.learning_rate,
                                    .minimum = deck_.train.min_learning_rate,
                                    .warmup_steps = deck_.train.warmup_steps,
                                    .total_steps = deck_.run.steps};
  for (std::int64_t u = first_update; u < update_; ++u) basis.learning_rates.push_back(learning_rate(u, rate));
  const auto rows = trace_rows(report, basis, first_update, update_);
  if (!rows.empty()) final_loss_ = rows.back().loss;
  trace_->append(rows);
  for (std::size_t r = 0; r < report.ranks.size(); ++r) trace_->append_actions(static_cast<int>(r), report.ranks[r]);
  trace_->flush();

  last_log_ = report.by_rank(place_, 0);
  check_segment(last_log_, 0, first_update);
  for (int replica = 1; replica < place_.replicas; ++replica) {
    check_segment(report.by_rank(place_, replica), replica, first_update);
  }
  const bool own_rule = !schedules::is_asynchronous(deck_.schedule.name) || asynchronous_now(first_update);
  if (own_rule && segment_ > 1) {
    steady_.tokens += (update_ - first_update) * basis.tokens_per_update;
    steady_.seconds += training_s;
    for (const auto& rank : report.ranks) {
      for (const auto& entry : rank) steady_.compute_s += entry.end_s - entry.start_s;
    }
  }
}

void Trainer::check_segment(const schedules::Log& log, int replica, std::int64_t first_update) {
  const std::int64_t window = deck_.train.microbatches;
  const schedules::CheckRange range{.first_microbatch = first_update * window,
                                    .microbatches = (update_ - first_update) * window,
                                    .first_update = first_update,
                                    .placement = place_.placement};
  const auto report = schedules::check(log, schedule_options(deck_, place_.stages()), range);
  if (!report.ok()) {
    const std::string of_replica = place_.replicas > 1 ? " on replica " + std::to_string(replica) : "";
    throw RunError("the action log of updates " + std::to_string(first_update) + " to " + std::to_string(update_) + of_replica +
                   " breaks the rules of schedule " + deck_.schedule.name + ": " + report.problems.front() + " (" +
                   std::to_string(report.problems.size()) + " problems; the log is in " + folder_.trace().string() + ")");
  }
  versions_.add(schedules::measure_versions(log.plan(), schedule_options(deck_, place_.stages())));
}

void Trainer::evaluate() {
  if (deck_.emulate.enabled || sources_.validation == nullptr) return;
  const double begin = clock();
  const auto poll = [&](bool moved) -> std::optional<std::int64_t> {
    poll_idle(moved);
    return std::nullopt;
  };
  const auto losses = pipeline_->evaluate(*sources_.validation, deck_.output.evaluation_batches, poll);
  wait_for_all();
  validation_loss_ = mean_loss(comm_.get(), losses);
  if (progress_) progress_->validation(update_, validation_loss_);
  agree(comm_.get(), [&] {
    if (place_.rank != 0) return;
    trace_->append_validation({update_, validation_loss_});
    trace_->flush();
  });
  seconds_.evaluation += clock() - begin;
}

void Trainer::write_checkpoint() {
  if (deck_.emulate.enabled) return;
  const double begin = clock();
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
  watchdog_->beat();
  agree(comm_.get(), [&] {
    save_checkpoint(comm_.get(), checkpoint_path(folder_.checkpoints(), update_), *pipeline_, state);
    if (place_.rank == 0) keep_last(folder_.checkpoints(), deck_.checkpoint.keep);
  });
  watchdog_->beat();
  seconds_.checkpoint += clock() - begin;
}

bool Trainer::stop_decided() {
  const double begin = clock();
  stop_->request_if_due();
  control_->finish();
  int stopping = 0;
  if (place_.rank == 0) {
    stopping = control_->poll_stop_request() ? 1 : 0;
    if (stopping && update_ < deck_.run.steps) {
      std::cout << stop_->reason() << ": stopping after update " << update_
                << " with a checkpoint; run again with run.resume=latest to go on";
      if (stop_->cut()) {
        std::cout << "\nthe pipe was drained where the deck does not drain it, so the resumed run will differ from one that "
                     "never stopped "
                     "(raise run.grace or lower checkpoint.interval to avoid that)";
      }
      std::cout << std::endl;
    }
  }
  check(MPI_Bcast(&stopping, 1, MPI_INT, 0, comm_.get()), "deciding whether to stop");
  seconds_.output += clock() - begin;
  return stopping != 0;
}

}  // namespace minipipe::core
