#pragma once

#include <cstdint>
#include <vector>

#include "schedules/plan/placement.hpp"
#include "schedules/plan/plan.hpp"

namespace minipipe::schedules {

// What a rank waited for messages between stages, activations and their gradients, that other ranks had sent it.
struct MessageWaits {
  std::int64_t received = 0;  // messages
  // Of these, those nobody waited for: the action that reads the message began at the rank's first look for something to do.
  std::int64_t hidden = 0;
  // In which the rank had nothing to do although the message it then went on with had been sent, that is, the action that makes
  // it had ended. What it waited before that is the schedule's bubble, not the message's time.
  double seconds = 0;

  MessageWaits& operator+=(const MessageWaits& other);
};

// By rank of the placement. `log` holds one or more whole segments (no message crosses a drain), with a row for each of these
// ranks. Neighbouring stages on one rank exchange no messages. Counts need the log of the receiver only; `seconds` compare the
// clocks of two ranks: a message counts no more than its receiver's whole wait and no less than 0, however far they are off.
std::vector<MessageWaits> message_waits(const Log& log, const Placement& placement);

}  // namespace minipipe::schedules
