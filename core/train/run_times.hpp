#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "schedules/exec/executor.hpp"

namespace minipipe::core {

// Where one rank's seconds went, over the whole run. With several stages on a rank their compute adds up and the rest of the
// training time is waiting.
struct RankSeconds {
  double compute = 0;
  double update = 0;
  double wait_input = 0;  // what the other purposes leave of `training`
  double exchange = 0;    // an update or a pass waited for the other replicas
  double send = 0;
  double evaluation = 0;
  double checkpoint = 0;
  double output = 0;    // traces and reports, waiting for other ranks to do so included
  double other = 0;     // set-up, and measuring the rate of matrix products at the end
  double training = 0;  // between the begin of a segment and its end on all ranks
  double wall = 0;

  // The purposes, with their names. They add up to `wall`.
  std::array<std::pair<const char*, double>, 9> purposes() const {
    return {{{"compute", compute},
             {"update", update},
             {"wait_input", wait_input},
             {"exchange", exchange},
             {"send", send},
             {"evaluation", evaluation},
             {"checkpoint", checkpoint},
             {"output", output},
             {"other", other}}};
  }
};

// Tokens and seconds of the part of the run that the schedule's own rule governed (asynchronous schedules: the updates after
// schedule.synchronous_updates; the first segment of a run is left out, because it warms caches and libraries up).
struct SteadyPart {
  std::int64_t tokens = 0;
  double seconds = 0;
  double compute_s = 0;  // compute and updates of all stages
};

}  // namespace minipipe::core
