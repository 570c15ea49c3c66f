#include "core/train/stop_rule.hpp"

#include <mpi.h>

#include <algorithm>

namespace minipipe::core {

StopRule::StopRule(const Deck& deck, Control& control, const StopSignal& signal, std::function<double()> elapsed,
                   std::int64_t in_flight)
    : deck_(deck), control_(control), signal_(signal), elapsed_(std::move(elapsed)), in_flight_(in_flight) {
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
  // No stage of a replica is ahead of its first one; without it, the segment ends where the deck says.
  if (first.stage != 0) return std::nullopt;
  const std::int64_t window = deck_.train.microbatches;
  const std::int64_t end = std::max(earliest_end(first), first_microbatch_ + window);
  if (end >= first.segment_end) return std::nullopt;
  const double done = static_cast<double>(first.forwards - first_microbatch_);
  const double rate = done / std::max(1e-9, elapsed_() - segment_started_);
  const double left_s = static_cast<double>(first.segment_end - first.forwards) / std::max(1e-9, rate);
  if (!drains_anyway_ && left_s <= deck_.run.grace) return std::nullopt;
  cut_ = !drains_anyway_;
  control_.announce_end(end);
  return end;
}

std::int64_t StopRule::earliest_end(const schedules::StageState& first) const {
  const std::int64_t window = deck_.train.microbatches;
  const auto up = [](std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; };
  if (deck_.parallel.data == 1) return up(first.forwards, window);
  // Replicas exchange every `unit` microbatches, and none makes that update before this one's backwards are there too; from
  // then on its forwards go on by what can be in flight.
  const bool averages = deck_.parallel.mode == "sdp" && deck_.sdp.sync == "parameter";
  const std::int64_t unit = averages ? window * deck_.sdp.period : window;
  const std::int64_t exchanged = (first.backwards / unit + 1) * unit;
  return drains_anyway_ ? exchanged : up(exchanged + in_flight_, unit);
}

std::string StopRule::reason() const {
  return control_.stop_reason() == StopReason::time_limit ? "run.time_limit was reached" : "a signal asked the run to stop";
}

}  // namespace minipipe::core
