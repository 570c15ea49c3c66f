#include <gtest/gtest.h>
#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "core/comm/delayed_channel.hpp"
#include "core/comm/mpi_channel.hpp"
#include "core/comm/mpi_error.hpp"
#include "schedules/error.hpp"
#include "unit_tests/mpi/wait_until.hpp"

namespace minipipe::core {
namespace {

struct Case {
  int slots;
  std::int64_t elements;
  MessageBuffers::Staging staging;
};

void fill(const MessageBuffers& buffers, int slot, float value) {
  Kokkos::deep_copy(Kokkos::subview(buffers.device(), slot, Kokkos::ALL), value);
  Kokkos::fence();
}

// First and last element of a message as the stage would see it; -1 if they differ, 0 for an empty message.
float content(const MessageBuffers& buffers, int slot) {
  const auto mirror = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffers.device());
  if (buffers.elements() == 0) {
    return 0;
  }
  const float first = mirror(slot, 0);
  return first == mirror(slot, buffers.elements() - 1) ? first : -1;
}

class MpiChannel : public ::testing::TestWithParam<Case> {
 protected:
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
};

// Every rank sends to the next and receives from the one before, around a ring: many messages through few slots.
TEST_P(MpiChannel, keeps_the_order_of_many_messages_in_few_slots) {
  const auto [slots, elements, staging] = GetParam();
  const int to = (comm.rank() + 1) % comm.size();
  const int from = (comm.rank() + comm.size() - 1) % comm.size();
  const MessageBuffers out("out", slots, elements, staging);
  const MessageBuffers in("in", slots + 1, elements, staging);
  MpiSendChannel send(comm.get(), to, 7, out);
  MpiReceiveChannel receive(comm.get(), from, 7, in);
  for (int slot = 0; slot < in.slots(); ++slot) {
    EXPECT_FALSE(receive.arrived(slot));  // not posted yet
    receive.post(slot);
  }
  const int messages = elements > 100'000 ? 12 : 200;
  int sends = 0;
  int receives = 0;
  const bool all = wait_until([&] {
    while (sends < messages && send.sent(sends % slots)) {
      fill(out, sends % slots, static_cast<float>(1000 * comm.rank() + sends));
      send.send(sends % slots);
      ++sends;
    }
    const int slot = receives % in.slots();
    if (receives < messages && receive.arrived(slot)) {
      EXPECT_EQ(content(in, slot), elements == 0 ? 0.0F : static_cast<float>(1000 * from + receives));
      receive.post(slot);
      ++receives;
    }
    bool quiet = sends == messages && receives == messages;
    for (int s = 0; s < slots; ++s) {
      quiet = send.sent(s) && quiet;
    }
    return quiet;
  });
  EXPECT_TRUE(all) << "sent " << sends << ", received " << receives;
  MPI_Barrier(comm.get());
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, MpiChannel,
    ::testing::Values(Case{1, 16, MessageBuffers::Staging::when_needed}, Case{3, 16, MessageBuffers::Staging::when_needed},
                      Case{2, 0, MessageBuffers::Staging::when_needed}, Case{2, 300'000, MessageBuffers::Staging::when_needed},
                      Case{2, 64, MessageBuffers::Staging::always}, Case{2, 300'000, MessageBuffers::Staging::always}),
    [](const auto& test) {
      return std::to_string(test.param.slots) + "_slots_" + std::to_string(test.param.elements) +
             (test.param.staging == MessageBuffers::Staging::always ? "_staged" : "");
    });

class MpiChannelMisuse : public ::testing::Test {
 protected:
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
};

// Two tags between the same two ranks do not mix, and a rank can have an edge to itself.
TEST_F(MpiChannelMisuse, tags_keep_edges_apart) {
  EXPECT_NE(edge_tag(0, Direction::activation), edge_tag(0, Direction::gradient));
  EXPECT_NE(edge_tag(0, Direction::gradient), edge_tag(1, Direction::activation));
  const MessageBuffers out("out", 2, 8);
  const MessageBuffers in("in", 2, 8);
  const int me = comm.rank();
  MpiSendChannel send_activation(comm.get(), me, edge_tag(3, Direction::activation), out);
  MpiSendChannel send_gradient(comm.get(), me, edge_tag(3, Direction::gradient), out);
  MpiReceiveChannel gradient(comm.get(), me, edge_tag(3, Direction::gradient), in);
  MpiReceiveChannel activation(comm.get(), me, edge_tag(3, Direction::activation), in);
  gradient.post(0);
  activation.post(1);
  fill(out, 0, 5);
  fill(out, 1, 6);
  send_activation.send(0);
  send_gradient.send(1);
  EXPECT_TRUE(wait_until([&] { return gradient.arrived(0) && activation.arrived(1); }));
  EXPECT_EQ(content(in, 0), 6);
  EXPECT_EQ(content(in, 1), 5);
  EXPECT_TRUE(wait_until([&] { return send_activation.sent(0) && send_gradient.sent(1); }));
}

TEST_F(MpiChannelMisuse, posted_receives_are_cancelled) {
  {
    const MessageBuffers in("in", 4, 1000);
    MpiReceiveChannel receive(comm.get(), (comm.rank() + 1) % comm.size(), 1, in);
    for (int slot = 0; slot < 4; ++slot) {
      receive.post(slot);
    }
  }
  // A receive that was still there would take this message away from the second channel.
  const MessageBuffers out("out", 1, 1000);
  const MessageBuffers in("in", 1, 1000);
  MPI_Barrier(comm.get());
  MpiSendChannel send(comm.get(), (comm.rank() + comm.size() - 1) % comm.size(), 1, out);
  MpiReceiveChannel receive(comm.get(), (comm.rank() + 1) % comm.size(), 1, in);
  receive.post(0);
  fill(out, 0, 9);
  send.send(0);
  EXPECT_TRUE(wait_until([&] { return receive.arrived(0); }));
  EXPECT_EQ(content(in, 0), 9);
  EXPECT_TRUE(wait_until([&] { return send.sent(0); }));
}

TEST_F(MpiChannelMisuse, the_memory_outlives_the_buffers_object) {
  auto out = std::make_unique<MessageBuffers>("out", 1, 300'000);
  auto in = std::make_unique<MessageBuffers>("in", 1, 300'000);
  const MessageBuffers seen = *in;
  MpiSendChannel send(comm.get(), comm.rank(), 1, *out);
  MpiReceiveChannel receive(comm.get(), comm.rank(), 1, *in);
  fill(*out, 0, 3);
  send.send(0);
  out.reset();
  in.reset();
  receive.post(0);
  EXPECT_TRUE(wait_until([&] { return receive.arrived(0); }));
  EXPECT_EQ(content(seen, 0), 3);
  EXPECT_TRUE(wait_until([&] { return send.sent(0); }));
}

TEST_F(MpiChannelMisuse, wrong_use_and_wrong_lengths_are_errors) {
  const MessageBuffers in("in", 1, 8);
  const MessageBuffers out("out", 1, 4);
  MpiReceiveChannel receive(comm.get(), comm.rank(), 1, in);
  EXPECT_THROW(receive.post(1), RunError);
  EXPECT_THROW(receive.arrived(-1), RunError);
  receive.post(0);
  EXPECT_THROW(receive.post(0), RunError);
  MpiSendChannel send(comm.get(), comm.rank(), 1, out);
  EXPECT_THROW(send.send(1), RunError);
  EXPECT_TRUE(send.sent(0));
  send.send(0);
  bool threw = false;
  EXPECT_TRUE(wait_until([&] {
    try {
      return receive.arrived(0);
    } catch (const RunError&) {
      return threw = true;
    }
  }));
  EXPECT_TRUE(threw);
  EXPECT_TRUE(wait_until([&] { return send.sent(0); }));
}

TEST_F(MpiChannelMisuse, a_send_under_way_blocks_its_slot) {
  const MessageBuffers out("out", 1, 1'000'000);  // too long for an eager send
  const MessageBuffers in("in", 1, 1'000'000);
  MpiSendChannel send(comm.get(), (comm.rank() + 1) % comm.size(), 1, out);
  send.send(0);
  EXPECT_FALSE(send.sent(0));
  EXPECT_THROW(send.send(0), RunError);
  MPI_Barrier(comm.get());
  MpiReceiveChannel receive(comm.get(), (comm.rank() + comm.size() - 1) % comm.size(), 1, in);
  receive.post(0);
  bool arrived = false;
  EXPECT_TRUE(wait_until([&] {
    arrived = receive.arrived(0) || arrived;
    return send.sent(0) && arrived;
  }));
  MPI_Barrier(comm.get());
}

// A latency on a real edge: with a clock that the test moves, the message is there and does not count.
TEST_F(MpiChannelMisuse, a_delayed_channel_holds_messages_back) {
  double now = 1;
  const MessageBuffers out("out", 1, 8);
  const MessageBuffers in("in", 1, 8);
  MpiSendChannel raw_send(comm.get(), comm.rank(), 1, out);
  StampedSendChannel send(
      raw_send, [&] { return now; }, stamp_writer(out));
  MpiReceiveChannel raw_receive(comm.get(), comm.rank(), 1, in);
  DelayedChannel receive(
      raw_receive, 3, [&] { return now; }, stamp_reader(in));
  receive.post(0);
  send.send(0);
  EXPECT_TRUE(wait_until([&] { return raw_receive.arrived(0); }));
  EXPECT_FALSE(receive.arrived(0));
  now = 3.9;
  EXPECT_FALSE(receive.arrived(0));
  now = 4;
  EXPECT_TRUE(receive.arrived(0));
  EXPECT_TRUE(wait_until([&] { return send.sent(0); }));
}

}  // namespace
}  // namespace minipipe::core
