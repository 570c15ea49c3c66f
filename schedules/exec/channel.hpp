#pragma once

namespace minipipe::schedules {

// One end of one directed edge between two stages. Messages are delivered in the order they are sent.
// Slots are numbered 0 .. slots()-1 on each end; the memory behind a slot belongs to whoever made the channel.
class SendChannel {
 public:
  virtual ~SendChannel() = default;
  virtual int slots() const = 0;
  // Starts sending the slot's message; its memory must not change until `sent(slot)` is true.
  virtual void send(int slot) = 0;
  // True once the memory of the slot may be written again. Throws RunError if the transport failed.
  virtual bool sent(int slot) = 0;
};

class ReceiveChannel {
 public:
  virtual ~ReceiveChannel() = default;
  virtual int slots() const = 0;
  // Makes the slot ready to take a message. Posts are filled in the order they are made.
  virtual void post(int slot) = 0;
  // True once a message has arrived in the posted slot. Throws RunError if the transport failed.
  virtual bool arrived(int slot) = 0;
};

// The four ends at a stage; null where there is no neighbour. Not owned.
struct StageChannels {
  ReceiveChannel* activation_in = nullptr;
  SendChannel* activation_out = nullptr;
  ReceiveChannel* gradient_in = nullptr;
  SendChannel* gradient_out = nullptr;
};

}  // namespace minipipe::schedules
