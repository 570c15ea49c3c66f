#pragma once

#include <cstdint>

#include "core/deck/deck.hpp"

namespace minipipe::core {

// Where the pipe drains. Evaluations, checkpoints and the switch from synchronous to asynchronous updates happen on an empty
// pipe. The deck fixes these updates, so a run that stops at one of them and resumes equals the run that never stopped.
class Drains {
 public:
  explicit Drains(const Deck& deck);

  // The first drain after `update` updates: a number of updates in (update, run.steps].
  std::int64_t next(std::int64_t update) const;

  bool evaluates(std::int64_t update) const;
  bool writes_checkpoint(std::int64_t update) const;

 private:
  std::int64_t steps_;
  std::int64_t evaluation_;
  std::int64_t checkpoint_;
  std::int64_t synchronous_;
  std::int64_t
      flush_;  // flush schedules drain at every update anyway: segments are kept short so that traces are written often
};

}  // namespace minipipe::core
