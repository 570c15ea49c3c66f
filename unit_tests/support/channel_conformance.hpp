#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/exec/channel.hpp"

// What every pair of channel ends must do. Where the two ends live in different processes, each process leaves the end it does
// not have null and both call the same function; checks that need both ends are then left out.
namespace minipipe::tests {

struct ChannelEnds {
  schedules::SendChannel* sender = nullptr;
  schedules::ReceiveChannel* receiver = nullptr;
  std::function<void(int slot, std::int64_t value)> write;  // fills the whole message of a send slot with the value
  std::function<std::int64_t(int slot)> read;               // a value of a receive slot; -1 if the message is not uniform
};

// Polls until the condition holds; false after ten seconds.
inline bool wait_for(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > limit) return false;
  }
  return true;
}

// `count` messages through all slots of both ends in ring order: they arrive in order and unmixed, however slots are reused,
// and a slot that was read is posted again while others are on their way. Every receive slot has to be idle; afterwards none is
// posted. `first` lets a test run several rounds with different values.
inline void pass_messages(const ChannelEnds& ends, std::int64_t count, std::int64_t first = 0) {
  std::int64_t sent = 0, completed = 0, posted = 0, received = 0;
  const auto send_slot = [&](std::int64_t number) { return static_cast<int>(number % ends.sender->slots()); };
  const auto receive_slot = [&](std::int64_t number) { return static_cast<int>(number % ends.receiver->slots()); };
  const bool done = wait_for([&] {
    if (ends.sender != nullptr) {
      while (completed < sent && ends.sender->sent(send_slot(completed))) ++completed;
      if (sent < count && sent - completed < ends.sender->slots()) {
        ends.write(send_slot(sent), first + sent);
        ends.sender->send(send_slot(sent++));
      }
    }
    if (ends.receiver != nullptr) {
      while (posted < count && posted - received < ends.receiver->slots()) ends.receiver->post(receive_slot(posted++));
      if (received < posted && ends.receiver->arrived(receive_slot(received))) {
        EXPECT_EQ(ends.read(receive_slot(received)), first + received);
        ++received;
      }
    }
    return (ends.sender == nullptr || completed == count) && (ends.receiver == nullptr || received == count);
  });
  ASSERT_TRUE(done) << "of " << count << " messages " << sent << " sent, " << completed << " completed, " << received
                    << " received";
}

// Both ends in this process: nothing arrives before it is sent, and it arrives in the slot that was posted first.
inline void arrives_only_after_send(const ChannelEnds& ends) {
  ASSERT_TRUE(ends.sender != nullptr && ends.receiver != nullptr);
  for (int slot = 0; slot < ends.receiver->slots(); ++slot) ends.receiver->post(slot);
  for (int poll = 0; poll < 100; ++poll) {
    for (int slot = 0; slot < ends.receiver->slots(); ++slot) ASSERT_FALSE(ends.receiver->arrived(slot));
  }
  for (int slot = 0; slot < ends.receiver->slots(); ++slot) {
    const int from = slot % ends.sender->slots();
    ends.write(from, 100 + slot);
    ends.sender->send(from);
    ASSERT_TRUE(wait_for([&] {
      const bool sent = ends.sender->sent(from);
      return ends.receiver->arrived(slot) && sent;
    }));
    EXPECT_EQ(ends.read(slot), 100 + slot);
    EXPECT_TRUE(ends.receiver->arrived(slot)) << "stays so until the slot is posted again";
    for (int later = slot + 1; later < ends.receiver->slots(); ++later) EXPECT_FALSE(ends.receiver->arrived(later));
  }
}

// Both ends in this process: posts are filled in the order they are made, not in the order of slot numbers.
inline void fills_posts_in_order(const ChannelEnds& ends) {
  ASSERT_TRUE(ends.sender != nullptr && ends.receiver != nullptr);
  for (int slot = ends.receiver->slots() - 1; slot >= 0; --slot) ends.receiver->post(slot);
  for (int slot = ends.receiver->slots() - 1; slot >= 0; --slot) {
    ends.write(0, 200 + slot);
    ends.sender->send(0);
    ASSERT_TRUE(wait_for([&] {
      const bool sent = ends.sender->sent(0);
      return ends.receiver->arrived(slot) && sent;
    }));
    EXPECT_EQ(ends.read(slot), 200 + slot);
  }
}

// All of it, with the ends in one process or in two.
inline void conforms(const ChannelEnds& ends) {
  if (ends.sender != nullptr && ends.receiver != nullptr) {
    arrives_only_after_send(ends);
    fills_posts_in_order(ends);
  }
  pass_messages(ends, 1);
  pass_messages(ends, 7, 1000);
  pass_messages(ends, 500, 2000);
}

}  // namespace minipipe::tests
