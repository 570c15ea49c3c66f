// Evaluations of a run, which a stop may cut short.
#include <algorithm>
#include <iostream>

#include "core/comm/agreement.hpp"
#include "core/train/evaluation_part.hpp"
#include "core/train/mean_loss.hpp"
#include "core/train/trainer.hpp"

namespace minipipe::core {

void Trainer::evaluate() {
  if (deck_.emulate.enabled || sources_.validation == nullptr) return;
  const double began = clock();
  const auto poll = [&](bool moved) -> std::optional<std::int64_t> {
    poll_idle(moved);
    return std::nullopt;
  };
  const auto next_part = [&](std::int64_t done, std::int64_t left) { return next_evaluation_part(done, left, began); };
  const auto losses = pipeline_->evaluate(*sources_.validation, deck_.output.evaluation_batches, poll, {}, next_part);
  wait_for_all();
  if (evaluation_cut_ == 0) {
    validation_loss_ = mean_loss(comm_.get(), losses);
    if (progress_) progress_->validation(update_, validation_loss_);
    agree(comm_.get(), [&] {
      if (place_.rank != 0) return;
      trace_->append_validation({update_, validation_loss_});
      trace_->flush();
    });
  }
  lap(seconds_.evaluation);
}

// A stop has to wait for the end of a part. The first one is never cut, so a short evaluation takes its course even under a
// limit that every evaluation exceeds.
std::int64_t Trainer::next_evaluation_part(std::int64_t done, std::int64_t left, double began) {
  if (done == 0) return evaluation_part(done, left, 0, place_.stages());
  stop_->request_if_due();
  wait_for_all();
  std::int64_t part = 0;
  if (place_.rank == 0 && !control_->poll_stop_request()) part = evaluation_part(done, left, clock() - began, place_.stages());
  check(MPI_Bcast(&part, 1, MPI_INT64_T, 0, comm_.get()), "deciding how an evaluation goes on");
  if (part == 0) evaluation_cut_ = done;
  return part;
}

// Rank 0. A run that goes on in its folder makes up for the evaluation that a stop has cut. Weights are as they were then.
bool Trainer::misses_evaluation() const {
  if (first_update_ == 0 || !continues_here() || !drains_.evaluates(first_update_)) return false;
  const auto rows = TraceReader(folder_.trace()).validation();
  return std::none_of(rows.begin(), rows.end(), [&](const ValidationRow& row) { return row.step == first_update_; });
}

void Trainer::tell_cut_evaluation() const {
  std::cout << "\nthe evaluation after update " << update_ << " was cut after " << evaluation_cut_ * place_.replicas << " of "
            << deck_.output.evaluation_batches << " microbatches; the resumed run makes up for it";
  if (update_ == first_update_) {
    std::cout << "\nno update was done, because this evaluation takes longer than the run may: raise run.time_limit or lower "
                 "output.evaluation_batches";
  }
}

bool Trainer::complete() const { return update_ >= deck_.run.steps && evaluation_cut_ == 0; }

}  // namespace minipipe::core
