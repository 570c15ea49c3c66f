#include <gtest/gtest.h>

#include "core/comm/delayed_channel.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/comm/fake_channel.hpp"

namespace minipipe::core {
namespace {

TEST(DelayedChannel, counts_from_the_first_look_without_a_stamp) {
  double now = 10;
  FakeReceiveChannel inner(2);
  DelayedChannel channel(inner, 0.5, [&] { return now; });
  EXPECT_EQ(channel.slots(), 2);
  channel.post(0);
  now = 20;
  EXPECT_FALSE(channel.arrived(0));
  inner.there[0] = true;
  EXPECT_FALSE(channel.arrived(0));
  now = 20.49;
  EXPECT_FALSE(channel.arrived(0));
  now = 20.5;
  EXPECT_TRUE(channel.arrived(0));
  now = 0;  // once arrived, it stays so until the next post
  EXPECT_TRUE(channel.arrived(0));
  channel.post(0);
  EXPECT_FALSE(channel.arrived(0));
}

TEST(DelayedChannel, asking_for_one_slot_sees_the_others) {
  double now = 0;
  FakeReceiveChannel inner(2);
  DelayedChannel channel(inner, 1, [&] { return now; });
  channel.post(0);
  channel.post(1);
  inner.there = {true, true};
  EXPECT_FALSE(channel.arrived(0));  // the clock of slot 1 starts here too
  now = 1;
  EXPECT_TRUE(channel.arrived(1));
}

TEST(DelayedChannel, a_slot_that_was_not_posted_has_not_arrived) {
  FakeReceiveChannel inner(1);
  inner.there[0] = true;
  DelayedChannel channel(inner, 0, [] { return 1.0; });
  EXPECT_FALSE(channel.arrived(0));
}

TEST(DelayedChannel, refuses_to_stamp_messages_in_a_device) {
  const MessageBuffers staged("test", 2, 4, MessageBuffers::Staging::always);
  EXPECT_THROW(stamp_writer(staged), InputError);
  EXPECT_THROW(stamp_reader(staged), InputError);
}

TEST(DelayedChannel, a_stamp_counts_from_the_sending) {
  if (!on_host) GTEST_SKIP() << "messages are in the memory of a device";
  double now = 5;
  const MessageBuffers buffers("test", 2, 4);
  FakeSendChannel inner_send;
  StampedSendChannel send(
      inner_send, [&] { return now; }, stamp_writer(buffers));
  FakeReceiveChannel inner(2);
  DelayedChannel receive(
      inner, 2, [&] { return now; }, stamp_reader(buffers));
  receive.post(1);
  send.send(1);
  EXPECT_EQ(inner_send.sends, std::vector<int>{1});
  EXPECT_TRUE(send.sent(1));
  inner.there[1] = true;
  now = 6.9;
  EXPECT_FALSE(receive.arrived(1));
  now = 7.1;
  EXPECT_TRUE(receive.arrived(1));
  // A receiver that computed for long sees the message at once: the latency passed meanwhile.
  receive.post(1);
  send.send(1);
  inner.there[1] = true;
  now = 100;
  EXPECT_TRUE(receive.arrived(1));
}

TEST(DelayedChannel, refuses_messages_too_small_for_a_stamp) {
  EXPECT_THROW(stamp_writer(MessageBuffers("test", 1, 1)), InputError);
  EXPECT_THROW(stamp_reader(MessageBuffers("test", 1, 0)), InputError);
}

TEST(MessageBuffers, slots_lie_apart_and_bytes_add_up) {
  const MessageBuffers buffers("test", 3, 5);
  EXPECT_EQ(buffers.slots(), 3);
  EXPECT_EQ(buffers.elements(), 5);
  EXPECT_EQ(buffers.transport_slot(2) - buffers.transport_slot(0), 10);
  EXPECT_EQ(buffers.device().label(), "minipipe::comm::test");
  const MessageBuffers staged("test", 3, 5, MessageBuffers::Staging::always);
  EXPECT_TRUE(staged.staged());
  EXPECT_EQ(staged.bytes(), 2 * 3 * 5 * 4);
  EXPECT_EQ(static_cast<const void*>(staged.transport_slot(1)), static_cast<const void*>(&staged.host()(1, 0)));
  const MessageBuffers handed_on("test", 3, 5, MessageBuffers::Staging::never);
  EXPECT_FALSE(handed_on.staged());
  EXPECT_EQ(handed_on.bytes(), 3 * 5 * 4);
  EXPECT_EQ(handed_on.transport_slot(1), handed_on.device().data() + 5);
  if (!buffers.staged()) {
    EXPECT_EQ(buffers.bytes(), 3 * 5 * 4);
  }
}

}  // namespace
}  // namespace minipipe::core
