#pragma once

#include <functional>
#include <vector>

#include "core/comm/message_buffers.hpp"
#include "schedules/exec/channel.hpp"

namespace minipipe::core {

// Emulated link latency: a message of `inner` counts as arrived only `latency_s` seconds later. Two ways to count:
// - without `sent_at`: from the first call of arrived() that finds it there. A stage that computes meanwhile does not poll, so
//   the latency then comes on top of its computing.
// - with `sent_at`: from the time the sender left in the message (StampedSendChannel). Latency then overlaps with computing,
//   as on a real link. Needs one clock for both ends: the steady clock of one machine.
class DelayedChannel : public schedules::ReceiveChannel {
 public:
  // `clock` gives seconds; `inner` must outlive the channel.
  DelayedChannel(schedules::ReceiveChannel& inner, double latency_s, std::function<double()> clock,
                 std::function<double(int slot)> sent_at = {});

  int slots() const override { return inner_.slots(); }
  void post(int slot) override;
  bool arrived(int slot) override;

 private:
  enum class State : char { posted, on_its_way, arrived };
  void look();

  schedules::ReceiveChannel& inner_;
  double latency_s_;
  std::function<double()> clock_;
  std::function<double(int)> sent_at_;
  std::vector<State> states_;
  std::vector<int> posted_;  // slots without a message yet, in the order in which they were posted
  std::vector<double> due_;  // seconds on the clock, for slots that are on their way
};

// Leaves the time in each message before it is sent.
class StampedSendChannel : public schedules::SendChannel {
 public:
  StampedSendChannel(schedules::SendChannel& inner, std::function<double()> clock, std::function<void(int slot, double)> stamp)
      : inner_(inner), clock_(std::move(clock)), stamp_(std::move(stamp)) {}

  int slots() const override { return inner_.slots(); }
  void send(int slot) override {
    stamp_(slot, clock_());
    inner_.send(slot);
  }
  bool sent(int slot) override { return inner_.sent(slot); }

 private:
  schedules::SendChannel& inner_;
  std::function<double()> clock_;
  std::function<void(int, double)> stamp_;
};

// The stamp is the first two floats of the message: for emulated messages only, whose contents mean nothing. The buffers must
// hold at least two elements and lie in host memory, unstaged (InputError).
std::function<void(int slot, double seconds)> stamp_writer(const MessageBuffers& buffers);
std::function<double(int slot)> stamp_reader(const MessageBuffers& buffers);

// Seconds of the machine's steady clock, common to all processes on it.
double steady_seconds();

}  // namespace minipipe::core
