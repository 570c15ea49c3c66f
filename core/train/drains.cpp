#include "core/train/drains.hpp"

#include <algorithm>

#include "core/train/replica_options.hpp"
#include "schedules/policy/policy.hpp"

namespace minipipe::core {

namespace {
// In whole periods between averages: holders of a unit are equal then.
std::int64_t flush_segment(const Deck& deck) {
  const std::int64_t period = std::max<std::int64_t>(1, average_period(deck));
  return (25 + period - 1) / period * period;
}

std::int64_t next_multiple(std::int64_t after, std::int64_t interval, std::int64_t otherwise) {
  return interval > 0 ? (after / interval + 1) * interval : otherwise;
}
}  // namespace

Drains::Drains(const Deck& deck)
    : steps_(deck.run.steps),
      evaluation_(deck.output.evaluation_interval),
      checkpoint_(deck.checkpoint.interval),
      synchronous_(schedules::is_asynchronous(deck.schedule.name) ? deck.schedule.synchronous_updates : 0),
      flush_(schedules::is_asynchronous(deck.schedule.name) ? 0 : flush_segment(deck)) {}

std::int64_t Drains::next(std::int64_t update) const {
  std::int64_t drain = std::min({steps_, next_multiple(update, evaluation_, steps_), next_multiple(update, checkpoint_, steps_),
                                 next_multiple(update, flush_, steps_)});
  if (update < synchronous_) drain = std::min(drain, synchronous_);
  return drain;
}

bool Drains::evaluates(std::int64_t update) const { return evaluation_ > 0 && (update % evaluation_ == 0 || update == steps_); }

bool Drains::writes_checkpoint(std::int64_t update) const {
  return update == steps_ || (checkpoint_ > 0 && update % checkpoint_ == 0);
}

}  // namespace minipipe::core
