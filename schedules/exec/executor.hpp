#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "schedules/exec/channel.hpp"
#include "schedules/exec/stage.hpp"
#include "schedules/plan/plan.hpp"
#include "schedules/policy/policy.hpp"
#include "schedules/policy/stage_state.hpp"

namespace minipipe::schedules {

// Where a stage's seconds went. Everything the stage does between begin_segment and the end of the segment is in one of these.
struct StageSeconds {
  double compute = 0;     // forwards and backwards
  double update = 0;      // optimizer steps
  double wait_input = 0;  // nothing could start: an activation or a gradient was missing
  double exchange = 0;    // an update waited for gradients of other replicas, or a pass for new weights
  double send = 0;        // starting sends, posting receives, testing them while an action is being started
};

// Runs one stage: asks the policy, acts, logs. Advances one action at a time and never blocks, so that one thread can run
// several stages. Knows the order of microbatches (ascending) and slot numbers, nothing about memory or transports.
//
// Seconds: the time between two calls of advance() counts as waiting for input. Where one thread runs several executors, the
// work of the others is therefore waiting too, and the purposes still add up to the time since begin_segment. Not so in the
// log: LoggedAction::waited_s begins at the first look in vain after an action, a wait for replicas or wait_anew().
//
// Life of a segment: begin_segment(end); advance() until finished(). The log of a segment ends with a drain action. Between
// segments every slot is free and every receive that is posted ahead stays posted for the next one.
class Executor {
 public:
  // `clock` gives seconds since the run's start. References are kept: stage, channels and policy must outlive the executor.
  // `activation_slots`: live microbatches the stage has room for. Receives are posted at once in all receive slots.
  Executor(int stage_index, int stages, std::int64_t activation_slots, Stage& stage, StageChannels channels,
           std::function<double()> clock);
  ~Executor();

  // Replaces the policy for the next segments.
  void set_policy(std::unique_ptr<Policy> policy);

  // Sets the counters at the start of a run (after a resume: microbatches and updates done so far), and after a segment of
  // forwards only. RunError inside a segment.
  void start_at(std::int64_t microbatches, std::int64_t updates);

  // Work until all microbatches below `end` are done on this stage. `end` may be lowered while the segment runs, to a value
  // that no stage has passed with a forward (RunError if this one has).
  void begin_segment(std::int64_t end);
  void lower_segment_end(std::int64_t end);

  // Does at most one action. True if something was done, or a message moved on; false if the stage has to wait.
  bool advance();

  // Another stage of the same thread has done an action: what this one waits for, it waits for from now on.
  void wait_anew();

  // The segment's forwards, backwards and updates are done and every send has completed.
  bool finished() const;

  const StageState& state() const;
  const StageSeconds& seconds() const;

  // Largest number of activation slots in use at one time so far.
  std::int64_t peak_in_flight() const;

  // The actions executed since the last call, moved out.
  ActionLog take_log();

  // What the stage is waiting for, for error messages: counters, slots, the last actions.
  std::string describe() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace minipipe::schedules
