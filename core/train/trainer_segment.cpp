// The loop of a training segment.
#include <algorithm>
#include <cmath>

#include "core/train/gated_policy.hpp"
#include "core/train/options.hpp"
#include "core/train/replay.hpp"
#include "core/train/trainer.hpp"
#include "schedules/error.hpp"
#include "schedules/policy/rank_list.hpp"

namespace minipipe::core {

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

void Trainer::train_segment() {
  const std::int64_t window = deck_.train.microbatches;
  const std::int64_t first = update_;
  const std::int64_t end = drains_.next(first);
  control_->begin_segment(++segment_);
  stop_->begin_segment(!asynchronous_now(first), first * window);
  check(MPI_Barrier(comm_.get()), "starting a segment together");
  lap(seconds_.output);
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
  wait_for_all();
  const double training_s = lap(seconds_.training);

  update_ = pipeline_->stages().front().executor->state().updates;
  double compute = 0;
  double update = 0;
  double send = 0;
  double exchange = 0;
  for (std::size_t s = 0; s < before.size(); ++s) {
    const auto& now = pipeline_->stages()[s].executor->seconds();
    compute += now.compute - before[s].compute;
    update += now.update - before[s].update;
    send += now.send - before[s].send;
    exchange += now.exchange - before[s].exchange;
  }
  // Several stages on one thread wait for each other's work, too: there, no waiting is told apart.
  if (before.size() > 1) exchange = 0;
  seconds_.compute += compute;
  seconds_.update += update;
  seconds_.send += send;
  seconds_.wait_input += training_s - compute - update - exchange - send;
  seconds_.exchange += exchange;
  training_tokens_ += (update_ - first) * tokens_per_update(deck_);

  report_segment(first, training_s);
  lap(seconds_.output);
}

void Trainer::poll_idle(bool moved) {
  if (moved) {
    nap_.reset();
    watchdog_.beat();
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
  watchdog_.beat();
}

}  // namespace minipipe::core
