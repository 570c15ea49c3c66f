#include "core/train/stop_rule.hpp"

#include <mpi.h>

#include <algorithm>

namespace minipipe::core {

StopRule::StopRule(const Deck& deck, Control& control, const StopSignal& signal, std::function<double()> elapsed)
    : deck_(deck), control_(control), signal_(signal), elapsed_(std::move(elapsed)) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  rank0_ = rank == 0;
}

void StopRule::begin_segment(bool drains_anyway, std::int64_t first_microbatch) {
  drains_anyway_ = drains_anyway;
  first_microbatch_ = first_microbatch;
  segment_started_ = elapsed_();
}

std::optional<std::int64_t> StopRule::poll(const schedules::StageState& first) {
  // Probing for control messages on every pass would cost more than the passes themselves when a stage is waiting.
  constexpr int every = 16;
  if (++polls_ % every != 0) return std::nullopt;
  request_if_due();
  if (!rank0_) return control_.poll_end();
  if (stopping_ || !control_.poll_stop_request()) return std::nullopt;
  stopping_ = true;
  return decide(first);
}

void StopRule::request_if_due() {
  if (signal_.received() != 0) control_.request_stop(StopReason::signal);
  if (rank0_ && deck_.run.time_limit > 0 && elapsed_() >= deck_.run.time_limit) control_.request_stop(StopReason::time_limit);
}

std::optional<std::int64_t> StopRule::decide(const schedules::StageState& first) {
  // No stage is ahead of the first one, so where that is now the segment can end; without it, it ends where the deck says.
  if (first.stage != 0) return std::nullopt;
  const std::int64_t window = deck_.train.microbatches;
  const std::int64_t end = std::max((first.forwards + window - 1) / window * window, first_microbatch_ + window);
  if (end >= first.segment_end) return std::nullopt;
  const double done = static_cast<double>(first.forwards - first_microbatch_);
  const double rate = done / std::max(1e-9, elapsed_() - segment_started_);
  const double left_s = static_cast<double>(first.segment_end - first.forwards) / std::max(1e-9, rate);
  if (!drains_anyway_ && left_s <= deck_.run.grace) return std::nullopt;
  cut_ = !drains_anyway_;
  control_.announce_end(end);
  return end;
}

std::string StopRule::reason() const {
  return control_.stop_reason() == StopReason::time_limit ? "run.time_limit was reached" : "a signal asked the run to stop";
}

}  // namespace minipipe::core
