#include "schedules/exec/inprocess_channel.hpp"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "schedules/error.hpp"

namespace minipipe::schedules {
namespace {

enum class Slot { free, waiting, filled };

Slot& at(std::vector<Slot>& slots, int slot) {
  if (slot < 0 || slot >= static_cast<int>(slots.size())) {
    throw RunError("in-process channel: there is no slot " + std::to_string(slot));
  }
  return slots[static_cast<std::size_t>(slot)];
}

// Waiting slots on both sides, in the order they came.
struct Matching {
  std::vector<Slot> sends;
  std::vector<Slot> receives;
  std::deque<int> send_queue;
  std::deque<int> receive_queue;
  InProcessChannel::Copy copy;

  void enter(std::vector<Slot>& slots, std::deque<int>& queue, int slot) {
    if (at(slots, slot) == Slot::waiting) throw RunError("in-process channel: slot " + std::to_string(slot) + " is in use");
    at(slots, slot) = Slot::waiting;
    queue.push_back(slot);
    if (send_queue.empty() || receive_queue.empty()) return;
    copy(send_queue.front(), receive_queue.front());
    at(sends, send_queue.front()) = Slot::free;
    at(receives, receive_queue.front()) = Slot::filled;
    send_queue.pop_front();
    receive_queue.pop_front();
  }
};

class Sender final : public SendChannel {
 public:
  explicit Sender(Matching& matching) : matching_(matching) {}
  int slots() const override { return static_cast<int>(matching_.sends.size()); }
  void send(int slot) override { matching_.enter(matching_.sends, matching_.send_queue, slot); }
  bool sent(int slot) override { return at(matching_.sends, slot) == Slot::free; }

 private:
  Matching& matching_;
};

class Receiver final : public ReceiveChannel {
 public:
  explicit Receiver(Matching& matching) : matching_(matching) {}
  int slots() const override { return static_cast<int>(matching_.receives.size()); }
  void post(int slot) override { matching_.enter(matching_.receives, matching_.receive_queue, slot); }
  bool arrived(int slot) override { return at(matching_.receives, slot) == Slot::filled; }

 private:
  Matching& matching_;
};

}  // namespace

class InProcessChannel::Ends {
 public:
  Ends(int send_slots, int receive_slots, Copy copy)
      : matching_{std::vector<Slot>(static_cast<std::size_t>(send_slots), Slot::free),
                  std::vector<Slot>(static_cast<std::size_t>(receive_slots), Slot::free),
                  {},
                  {},
                  std::move(copy)},
        sender_(matching_),
        receiver_(matching_) {}

  Matching matching_;
  Sender sender_;
  Receiver receiver_;
};

InProcessChannel::InProcessChannel(int send_slots, int receive_slots, Copy copy) {
  if (send_slots < 1 || receive_slots < 1) throw RunError("in-process channel: needs one slot or more on each end");
  ends_ = std::make_unique<Ends>(send_slots, receive_slots, std::move(copy));
}
InProcessChannel::~InProcessChannel() = default;

SendChannel& InProcessChannel::sender() { return ends_->sender_; }
ReceiveChannel& InProcessChannel::receiver() { return ends_->receiver_; }

}  // namespace minipipe::schedules
