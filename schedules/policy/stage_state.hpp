#pragma once

#include <cstdint>

namespace minipipe::schedules {

// All a policy may know when it decides: the counters of one stage and whether the next inputs are there.
// Microbatches are processed in ascending order on every stage, so a counter is also the number of the next microbatch.
struct StageState {
  int stage = 0;                   // 0-based; the papers' i is stage + 1
  int stages = 1;                  // N
  std::int64_t forwards = 0;       // forwards done
  std::int64_t backwards = 0;      // input gradients done (a whole backward counts here and in `weights`)
  std::int64_t weights = 0;        // weight gradients done
  std::int64_t updates = 0;        // optimizer steps done
  std::int64_t segment_begin = 0;  // first microbatch after the last drain
  std::int64_t segment_end = 0;    // the pipe drains before this microbatch: no forward at or beyond it
  bool input_ready = false;        // forward number `forwards` can start: its input has arrived and its output has room
  bool gradient_ready = false;     // backward number `backwards` can start

  // Activations alive on the stage (the papers' q).
  std::int64_t in_flight() const { return forwards - backwards; }
  // Actions of all kinds done; a whole backward counts twice.
  std::int64_t actions() const { return forwards + backwards + weights + updates; }
  bool forwards_left() const { return forwards < segment_end; }
};

}  // namespace minipipe::schedules
