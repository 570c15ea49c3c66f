#include "schedules/exec/ring.hpp"

#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

template <class Channel>
int slot_count(Channel* channel) {
  if (channel == nullptr) return 0;
  if (channel->slots() < 1) throw RunError("a channel between two stages has no message slots; give it one or more");
  return channel->slots();
}

}  // namespace

ReceiveRing::ReceiveRing(ReceiveChannel* channel) : channel_(channel), slots_(slot_count(channel)) {
  for (int slot = 0; slot < slots_; ++slot) channel_->post(slot);
}

bool ReceiveRing::poll() {
  const int before = arrived_;
  while (arrived_ < slots_ && channel_->arrived((next_ + arrived_) % slots_)) ++arrived_;
  return arrived_ > before;
}

void ReceiveRing::release() {
  if (channel_ == nullptr) return;
  --arrived_;
  channel_->post(next_);
  next_ = (next_ + 1) % slots_;
}

SendRing::SendRing(SendChannel* channel) : channel_(channel), slots_(slot_count(channel)) {}

bool SendRing::poll() {
  const int before = pending_;
  while (pending_ > 0 && channel_->sent((next_ + slots_ - pending_) % slots_)) --pending_;
  return pending_ < before;
}

void SendRing::send() {
  if (channel_ == nullptr) return;
  ++pending_;
  channel_->send(next_);
  next_ = (next_ + 1) % slots_;
}

}  // namespace minipipe::schedules
