#pragma once

#include "schedules/exec/channel.hpp"

namespace minipipe::schedules {

// The receive slots of one channel, posted ahead in ring order and used in the order of arrival. Without a channel there is
// nothing to wait for: always ready, slot -1.
class ReceiveRing {
 public:
  // Posts all slots. Throws RunError if the channel has none.
  explicit ReceiveRing(ReceiveChannel* channel);
  // True if a message has arrived since the last call. Messages come in order, so that one slot that is still empty ends it:
  // with many slots, asking for each would cost a waiting stage, and those that share its core, far more than the message.
  bool poll();
  bool ready() const { return channel_ == nullptr || arrived_ > 0; }
  int slot() const { return channel_ == nullptr ? -1 : next_; }
  // The message in slot() has been read: the slot is posted again and the next one becomes current.
  void release();

 private:
  ReceiveChannel* channel_;
  int slots_;
  int next_ = 0;
  int arrived_ = 0;  // messages, from slot next_ on
};

// The send slots of one channel, used in ring order. Without a channel there is always room, in slot -1.
class SendRing {
 public:
  explicit SendRing(SendChannel* channel);
  // True if a send has completed since the last call; slots are used again in order, so that only the oldest is asked for.
  bool poll();
  bool room() const { return channel_ == nullptr || pending_ < slots_; }
  int slot() const { return channel_ == nullptr ? -1 : next_; }
  // Starts sending slot(); the next one becomes current.
  void send();
  int pending() const { return pending_; }

 private:
  SendChannel* channel_;
  int slots_;
  int next_ = 0;
  int pending_ = 0;  // sends, up to the slot before next_
};

}  // namespace minipipe::schedules
