#pragma once

#include <vector>

#include "schedules/exec/channel.hpp"

namespace minipipe::schedules {

// The receive slots of one channel, posted ahead in ring order and used in the order of arrival. Without a channel there is
// nothing to wait for: always ready, slot -1.
class ReceiveRing {
 public:
  // Posts all slots. Throws RunError if the channel has none.
  explicit ReceiveRing(ReceiveChannel* channel);
  // True if a message has arrived since the last call. Every posted slot is tested, since a transport may move on only then.
  bool poll();
  bool ready() const { return channel_ == nullptr || arrived_[static_cast<std::size_t>(next_)]; }
  int slot() const { return channel_ == nullptr ? -1 : next_; }
  // The message in slot() has been read: the slot is posted again and the next one becomes current.
  void release();

 private:
  ReceiveChannel* channel_;
  std::vector<bool> arrived_;
  int next_ = 0;
};

// The send slots of one channel, used in ring order. Without a channel there is always room, in slot -1.
class SendRing {
 public:
  explicit SendRing(SendChannel* channel);
  // True if a send has completed since the last call.
  bool poll();
  bool room() const { return channel_ == nullptr || !busy_[static_cast<std::size_t>(next_)]; }
  int slot() const { return channel_ == nullptr ? -1 : next_; }
  // Starts sending slot(); the next one becomes current.
  void send();
  int pending() const { return pending_; }

 private:
  SendChannel* channel_;
  std::vector<bool> busy_;
  int next_ = 0;
  int pending_ = 0;
};

}  // namespace minipipe::schedules
