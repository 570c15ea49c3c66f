#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/comm/mpi_error.hpp"

namespace minipipe::core {

enum class StopReason : std::int64_t { none, signal, time_limit, failure };

// Small messages beside the pipeline's: any rank asks rank 0 to stop, rank 0 tells the others where the running segment ends,
// and some how far they may go before they hear of that.
// On its own communicator, without blocking, no thread. Messages carry the number of the segment they were sent in: an end
// announced for an earlier segment is dropped, one for a later segment waits for it. A request to stop holds for the whole
// run, in whatever segment it arrives.
class Control {
 public:
  // Collective over `parent`, as is finish().
  explicit Control(MPI_Comm parent);
  // Without finish() before, messages under way are abandoned.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Every rank, when it starts segment number `segment` (ascending).
  void begin_segment(std::int64_t segment);

  // Any rank, rank 0 included. Only the first call sends.
  void request_stop(StopReason reason);
  // Rank 0: true from the first request on.
  bool poll_stop_request();
  // Rank 0: why, as far as poll_stop_request has seen: the first reason that arrived.
  StopReason stop_reason() const { return stop_reason_; }

  // Rank 0: the running segment ends before microbatch `end`. Sent to all other ranks.
  void announce_end(std::int64_t end);
  // Other ranks: an end announced for the running segment, each once, in the order announced. Always empty on rank 0.
  std::optional<std::int64_t> poll_end();

  // Rank 0: these ranks may begin microbatches before `end`, of the running segment.
  void admit(std::int64_t end, const std::vector<int>& ranks);
  // Other ranks: the furthest end admitted to them for the running segment since the last call.
  std::optional<std::int64_t> poll_admitted();

  // Completes every send and receives every message that is still under way. Blocks until all ranks are here. Requests to
  // stop that come in here still count; ends are dropped. The object can be used on afterwards.
  void finish();

 private:
  enum Tag : int { tag_stop = 1, tag_end = 2, tag_admit = 3 };
  struct Message {
    std::int64_t segment;
    std::int64_t value;
  };
  struct Outgoing {
    Message message;
    std::vector<MPI_Request> requests;
  };

  void start_send(Message message, Tag tag, const std::vector<int>& peers);
  bool receive_one();
  void receive_all();
  void forget_completed();

  Communicator comm_;
  std::int64_t segment_ = 0;
  bool stop_sent_ = false;
  StopReason stop_reason_ = StopReason::none;
  std::deque<Message> ends_;       // arrived, not polled yet
  std::deque<Message> admitted_;   // likewise
  std::deque<Outgoing> outgoing_;  // a deque: requests keep the address of the message
  std::vector<std::int64_t> sent_to_;
  std::int64_t received_ = 0;
};

}  // namespace minipipe::core
