#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/control.hpp"
#include "core/comm/stop_signal.hpp"
#include "core/deck/deck.hpp"
#include "schedules/policy/stage_state.hpp"

namespace minipipe::core {

// Ends a run early and in order. A signal on any rank, or run.time_limit on rank 0, becomes a request; rank 0 then decides
// where the running segment ends and tells the others, so that the pipe drains at the same microbatch everywhere.
//
// Where: a flush schedule drains after every update anyway, so the current update is the last one (with replicas: one of the
// next). An asynchronous schedule goes on to the drain the deck fixes if that is within run.grace seconds, because only then
// does a resumed run equal one that never stopped; otherwise it drains at the next window and the run says so.
//
// With replicas: no replica may be beyond an end when it hears of it, and replica 0 does not know how far the others are. So
// they go on only as far as rank 0 has admitted, which is always some updates ahead of it (nobody waits for that: gradients
// hold replicas together more closely), and where rank 0 has admitted last the segment ends.
class StopRule {
 public:
  // `comm`: of the run, as `control` has it; only its ranks are asked for. `elapsed`: seconds since this process' run began.
  // References must outlive the rule.
  // `in_flight`: activations that the first stage has room for. `followers`: the ranks of the other replicas' first stages.
  StopRule(const Deck& deck, MPI_Comm comm, Control& control, const StopSignal& signal, std::function<double()> elapsed,
           std::int64_t in_flight, std::vector<int> followers = {});

  // All ranks, at the start of each training segment. `drains_anyway`: the segment's updates are synchronous.
  void begin_segment(bool drains_anyway, std::int64_t first_microbatch);

  // All ranks, between actions; `first` is the state of the rank's first stage. A lower end for the running segment, if any.
  std::optional<std::int64_t> poll(const schedules::StageState& first);

  // The first stage begins no microbatch at or beyond this one.
  std::int64_t admitted() const { return admitted_; }

  // All ranks, between segments: passes on a signal that came since the last poll.
  void request_if_due();

  // Rank 0: a request has been seen, so the run ends with the running segment.
  bool stopping() const { return stopping_; }
  // Rank 0: the segment was cut short of the drain the deck fixes, under a schedule that does not drain anyway.
  bool cut() const { return cut_; }
  std::string reason() const;

 private:
  std::optional<std::int64_t> decide(const schedules::StageState& first);
  // How far replicas may go when the first stage of the first one has begun `forwards` microbatches.
  std::int64_t ahead_of(std::int64_t forwards) const;

  const Deck& deck_;
  Control& control_;
  const StopSignal& signal_;
  std::function<double()> elapsed_;
  std::int64_t in_flight_;
  std::vector<int> followers_;
  bool rank0_;
  bool follows_;
  bool stopping_ = false;
  bool cut_ = false;
  bool drains_anyway_ = false;
  bool announced_ = false;  // the running segment's end
  std::int64_t admitted_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t first_microbatch_ = 0;
  double segment_started_ = 0;
  int polls_ = 0;
};

}  // namespace minipipe::core
