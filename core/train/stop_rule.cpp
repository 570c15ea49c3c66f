#include "core/train/stop_rule.hpp"

#include <algorithm>
#include <utility>

#include "core/comm/mpi_error.hpp"
#include "core/train/replica_options.hpp"

namespace minipipe::core {

StopRule::StopRule(const Deck& deck, MPI_Comm comm, Control& control, const StopSignal& signal, std::function<double()> elapsed,
                   std::int64_t in_flight, std::vector<int> followers)
    : deck_(deck),
      control_(control),
      signal_(signal),
      elapsed_(std::move(elapsed)),
      in_flight_(in_flight),
      followers_(std::move(followers)) {
  int rank = 0;
  check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  rank0_ = rank == 0;
  follows_ = std::find(followers_.begin(), followers_.end(), rank) != followers_.end();
}

void StopRule::begin_segment(bool drains_anyway, std::int64_t first_microbatch) {
  drains_anyway_ = drains_anyway;
  first_microbatch_ = first_microbatch;
  segment_started_ = elapsed_();
  announced_ = false;
  if (deck_.parallel.data > 1 && (rank0_ || follows_)) admitted_ = ahead_of(first_microbatch);
}

std::optional<std::int64_t> StopRule::poll(const schedules::StageState& first) {
  if (rank0_ && deck_.parallel.data > 1 && !announced_ && ahead_of(first.forwards) > admitted_) {
    admitted_ = ahead_of(first.forwards);
    control_.admit(admitted_, followers_);
  }
  // Probing for control messages on every pass would cost more than the passes themselves when a stage is waiting.
  constexpr int every = 16;
  if (++polls_ % every != 0) return std::nullopt;
  if (follows_) admitted_ = std::max(admitted_, control_.poll_admitted().value_or(admitted_));
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
  const std::int64_t running = (first.forwards + window - 1) / window * window;
  const std::int64_t end = deck_.parallel.data > 1 ? admitted_ : std::max(running, first_microbatch_ + window);
  if (end >= first.segment_end) return std::nullopt;
  const double done = static_cast<double>(first.forwards - first_microbatch_);
  const double rate = done / std::max(1e-9, elapsed_() - segment_started_);
  const double left_s = static_cast<double>(first.segment_end - first.forwards) / std::max(1e-9, rate);
  if (!drains_anyway_ && left_s <= deck_.run.grace) return std::nullopt;
  cut_ = !drains_anyway_;
  announced_ = true;
  control_.announce_end(end);
  return end;
}

// Another replica makes at most the update that this one's gradients are complete for, and then goes on by an update and by
// what can be in flight. One more, so that the message is there in time.
std::int64_t StopRule::ahead_of(std::int64_t forwards) const {
  const std::int64_t unit = deck_.train.microbatches * std::max<std::int64_t>(1, average_period(deck_));
  const std::int64_t in_flight = drains_anyway_ ? 0 : (in_flight_ + unit - 1) / unit * unit;
  return (forwards / unit + 2) * unit + in_flight;
}

std::string StopRule::reason() const {
  return control_.stop_reason() == StopReason::time_limit ? "run.time_limit was reached" : "a signal asked the run to stop";
}

}  // namespace minipipe::core
