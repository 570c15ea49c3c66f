#include <gtest/gtest.h>
#include <mpi.h>

#include <functional>
#include <memory>
#include <string>

#include "core/comm/delayed_channel.hpp"
#include "core/comm/mpi_channel.hpp"
#include "core/comm/mpi_error.hpp"
#include "unit_tests/support/channel_conformance.hpp"

namespace minipipe::core {
namespace {

struct Case {
  std::string name;
  int send_slots;
  int receive_slots;
  std::int64_t elements;
  MessageBuffers::Staging staging = MessageBuffers::Staging::when_needed;
  double latency_s = 0;  // above 0: DelayedChannel; stamped as well if `stamped`
  bool stamped = false;
};

constexpr std::int64_t stamp_elements = 2;  // the stamp's place: not part of the value

void write_value(const MessageBuffers& buffers, int slot, std::int64_t value) {
  Kokkos::deep_copy(Kokkos::subview(buffers.device(), slot, Kokkos::ALL), static_cast<float>(value));
  Kokkos::fence();
}

std::int64_t read_value(const MessageBuffers& buffers, int slot, std::int64_t skip) {
  const auto message = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), buffers.device());
  for (std::int64_t i = skip; i < buffers.elements(); ++i) {
    if (message(slot, i) != message(slot, skip)) {
      return -1;
    }
  }
  return static_cast<std::int64_t>(message(slot, skip));
}

class MpiConformance : public ::testing::TestWithParam<Case> {
 protected:
  // One edge from rank `from` to rank `to`; ranks that are neither have no part in it.
  void check_edge(int from, int to) {
    const Case& test = GetParam();
    const Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
    const int tag = edge_tag(0, Direction::gradient);
    const MessageBuffers out("out", test.send_slots, test.elements, test.staging);
    const MessageBuffers in("in", test.receive_slots, test.elements, test.staging);
    tests::ChannelEnds ends;
    std::unique_ptr<schedules::SendChannel> send, stamped_send;
    std::unique_ptr<schedules::ReceiveChannel> receive, delayed_receive;
    if (comm.rank() == from) {
      send = std::make_unique<MpiSendChannel>(comm.get(), to, tag, out);
      ends.sender = send.get();
      if (test.stamped) {
        stamped_send = std::make_unique<StampedSendChannel>(*send, steady_seconds, stamp_writer(out));
        ends.sender = stamped_send.get();
      }
    }
    if (comm.rank() == to) {
      receive = std::make_unique<MpiReceiveChannel>(comm.get(), from, tag, in);
      ends.receiver = receive.get();
      if (test.latency_s > 0) {
        delayed_receive = std::make_unique<DelayedChannel>(*receive, test.latency_s, steady_seconds,
                                                           test.stamped ? stamp_reader(in) : std::function<double(int)>());
        ends.receiver = delayed_receive.get();
      }
    }
    ends.write = [&](int slot, std::int64_t value) { write_value(out, slot, value); };
    ends.read = [&](int slot) { return read_value(in, slot, test.stamped ? stamp_elements : 0); };
    if (ends.sender != nullptr || ends.receiver != nullptr) {
      tests::conforms(ends);
    }
    MPI_Barrier(comm.get());
  }
};

TEST_P(MpiConformance, holds_between_two_ranks) {
  check_edge(0, 1);
  check_edge(1, 0);
}

TEST_P(MpiConformance, holds_within_a_rank) { check_edge(0, 0); }

INSTANTIATE_TEST_SUITE_P(
    Edges, MpiConformance,
    ::testing::Values(Case{"one_slot", 1, 1, 16}, Case{"few_send_slots", 1, 4, 16}, Case{"few_receive_slots", 4, 1, 16},
                      Case{"long_messages", 2, 3, 20'000}, Case{"staged", 2, 2, 64, MessageBuffers::Staging::always},
                      Case{"delayed", 2, 3, 16, MessageBuffers::Staging::when_needed, 2e-5},
                      Case{"delayed_and_stamped", 2, 3, 16, MessageBuffers::Staging::when_needed, 2e-5, true}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace minipipe::core
