// A receive channel whose messages arrive when the test says so.
#pragma once

#include <vector>

#include "schedules/exec/channel.hpp"

namespace minipipe::core {

class FakeReceiveChannel : public schedules::ReceiveChannel {
 public:
  explicit FakeReceiveChannel(int slots) : there(static_cast<std::size_t>(slots), false) {}
  int slots() const override { return static_cast<int>(there.size()); }
  void post(int slot) override { there.at(static_cast<std::size_t>(slot)) = false; }
  bool arrived(int slot) override { return there.at(static_cast<std::size_t>(slot)); }

  std::vector<bool> there;
};

class FakeSendChannel : public schedules::SendChannel {
 public:
  int slots() const override { return 2; }
  void send(int slot) override { sends.push_back(slot); }
  bool sent(int) override { return true; }

  std::vector<int> sends;
};

}  // namespace minipipe::core
