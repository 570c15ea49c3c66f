#include "schedules/exec/ring.hpp"

#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

template <class Channel>
std::size_t slot_count(Channel* channel) {
  if (channel == nullptr) return 0;
  if (channel->slots() < 1) throw RunError("a channel between two stages has no message slots; give it one or more");
  return static_cast<std::size_t>(channel->slots());
}

}  // namespace

ReceiveRing::ReceiveRing(ReceiveChannel* channel) : channel_(channel), arrived_(slot_count(channel), false) {
  for (std::size_t slot = 0; slot < arrived_.size(); ++slot) channel_->post(static_cast<int>(slot));
}

bool ReceiveRing::poll() {
  bool moved = false;
  for (std::size_t slot = 0; slot < arrived_.size(); ++slot) {
    if (!arrived_[slot] && channel_->arrived(static_cast<int>(slot))) moved = arrived_[slot] = true;
  }
  return moved;
}

void ReceiveRing::release() {
  if (channel_ == nullptr) return;
  arrived_[static_cast<std::size_t>(next_)] = false;
  channel_->post(next_);
  next_ = (next_ + 1) % static_cast<int>(arrived_.size());
}

SendRing::SendRing(SendChannel* channel) : channel_(channel), busy_(slot_count(channel), false) {}

bool SendRing::poll() {
  bool moved = false;
  for (std::size_t slot = 0; pending_ > 0 && slot < busy_.size(); ++slot) {
    if (!busy_[slot] || !channel_->sent(static_cast<int>(slot))) continue;
    busy_[slot] = false;
    --pending_;
    moved = true;
  }
  return moved;
}

void SendRing::send() {
  if (channel_ == nullptr) return;
  busy_[static_cast<std::size_t>(next_)] = true;
  ++pending_;
  channel_->send(next_);
  next_ = (next_ + 1) % static_cast<int>(busy_.size());
}

}  // namespace minipipe::schedules
