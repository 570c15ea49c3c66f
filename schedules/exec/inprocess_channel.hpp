#pragma once

#include <functional>
#include <memory>

#include "schedules/exec/channel.hpp"

namespace minipipe::schedules {

// Two ends of one edge in the same thread. A message moves when both sides are there: at `send` if a receive is posted, else at
// the `post` that takes it. Not thread-safe: all stages that share such channels are advanced by one thread.
class InProcessChannel {
 public:
  // Moves the message in the sender's slot to the receiver's slot.
  using Copy = std::function<void(int from_slot, int to_slot)>;

  InProcessChannel(int send_slots, int receive_slots, Copy copy);
  ~InProcessChannel();

  // The ends live as long as this object. RunError for a slot that does not exist or is still in use.
  SendChannel& sender();
  ReceiveChannel& receiver();

 private:
  class Ends;
  std::unique_ptr<Ends> ends_;
};

}  // namespace minipipe::schedules
