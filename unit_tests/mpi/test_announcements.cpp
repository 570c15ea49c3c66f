// Announced messages: an edge made of announcements and of MPI messages that stand for those of another library, whose receives
// are started only once they are announced.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <vector>

#include "core/comm/announcements.hpp"
#include "core/comm/mpi_error.hpp"
#include "schedules/error.hpp"
#include "unit_tests/support/channel_conformance.hpp"

namespace minipipe::core {
namespace {

constexpr int tag = 4;
constexpr int message_tag = 5;

class Sender : public schedules::SendChannel {
 public:
  Sender(MPI_Comm comm, int peer, int slots)
      : comm_(comm), peer_(peer), announced_(slots), requests_(slots, MPI_REQUEST_NULL), values(slots, 0) {
    announced_.connect(comm, peer, tag);
  }
  int slots() const override { return static_cast<int>(requests_.size()); }
  void send(int slot) override {
    MPI_Isend(&values[slot], 1, MPI_INT64_T, peer_, message_tag, comm_, &requests_[slot]);
    announced_.announce(slot);
  }
  bool sent(int slot) override {
    int done = 0;
    MPI_Test(&requests_[slot], &done, MPI_STATUS_IGNORE);
    return announced_.told(slot) && done != 0;
  }

 private:
  MPI_Comm comm_;
  int peer_;
  AnnouncedSends announced_;
  std::vector<MPI_Request> requests_;

 public:
  std::vector<std::int64_t> values;  // by slot
};

class Receiver : public schedules::ReceiveChannel {
 public:
  // Its slots can be posted before it is connected.
  explicit Receiver(int slots) : requests_(slots, MPI_REQUEST_NULL), posted_(slots, false), values(slots, 0) {}
  void connect(MPI_Comm comm, int peer) {
    comm_ = comm;
    peer_ = peer;
    announced_.connect(comm, peer, tag);
  }
  int slots() const override { return static_cast<int>(requests_.size()); }
  void post(int slot) override {
    posted_[slot] = true;
    announced_.post(slot);
  }
  bool arrived(int slot) override {
    while (const auto next = announced_.take()) {
      ++started;
      MPI_Irecv(&values[*next], 1, MPI_INT64_T, peer_, message_tag, comm_, &requests_[*next]);
    }
    if (!posted_[slot] || announced_.waits(slot)) return false;
    int done = 0;
    MPI_Test(&requests_[slot], &done, MPI_STATUS_IGNORE);
    return done != 0;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  int peer_ = 0;
  AnnouncedReceives announced_;
  std::vector<MPI_Request> requests_;
  std::vector<bool> posted_;

 public:
  std::vector<std::int64_t> values;
  int started = 0;
};

class Announcements : public ::testing::TestWithParam<int> {};

TEST_P(Announcements, make_a_channel) {
  const Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  const int slots = GetParam();
  Sender sender(comm.get(), 1, slots);
  Receiver receiver(slots);
  tests::ChannelEnds ends;
  if (comm.rank() == 0) ends.sender = &sender;
  if (comm.rank() == 1) {
    receiver.connect(comm.get(), 0);
    ends.receiver = &receiver;
  }
  ends.write = [&](int slot, std::int64_t value) { sender.values[slot] = value; };
  ends.read = [&](int slot) { return receiver.values[slot]; };
  if (comm.rank() < 2) tests::conforms(ends);
  MPI_Barrier(comm.get());
}

INSTANTIATE_TEST_SUITE_P(Slots, Announcements, ::testing::Values(1, 2, 5));

// What a segment leaves behind: slots are posted, and nothing is under way.
TEST(AnnouncementsOfOneRank, start_no_receive_without_a_message) {
  const Communicator comm = Communicator::duplicate(MPI_COMM_SELF);
  Sender sender(comm.get(), 0, 2);
  Receiver receiver(2);
  receiver.post(1);
  receiver.post(0);
  EXPECT_FALSE(receiver.arrived(1)) << "before it is connected";
  receiver.connect(comm.get(), 0);
  EXPECT_FALSE(receiver.arrived(1));
  EXPECT_EQ(receiver.started, 0);
  sender.values[0] = 7;
  sender.send(0);
  ASSERT_TRUE(tests::wait_for([&] { return receiver.arrived(1); }));
  ASSERT_TRUE(tests::wait_for([&] { return sender.sent(0); }));
  EXPECT_EQ(receiver.values[1], 7) << "the slot that was posted first";
  EXPECT_FALSE(receiver.arrived(0));
  EXPECT_EQ(receiver.started, 1);
}

}  // namespace
}  // namespace minipipe::core
