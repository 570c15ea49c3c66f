#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "schedules/error.hpp"
#include "schedules/exec/inprocess_channel.hpp"
#include "unit_tests/support/channel_conformance.hpp"

namespace minipipe::schedules {
namespace {

struct Edge {
  Edge(int send_slots, int receive_slots)
      : from(static_cast<std::size_t>(send_slots)),
        to(static_cast<std::size_t>(receive_slots)),
        channel(send_slots, receive_slots, [this](int source, int target) {
          to.at(static_cast<std::size_t>(target)) = from.at(static_cast<std::size_t>(source));
        }) {}

  tests::ChannelEnds ends() {
    return {&channel.sender(), &channel.receiver(),
            [this](int slot, std::int64_t value) { from.at(static_cast<std::size_t>(slot)) = value; },
            [this](int slot) { return to.at(static_cast<std::size_t>(slot)); }};
  }

  std::vector<std::int64_t> from, to;
  InProcessChannel channel;
};

class InProcess : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(InProcess, ConformsWithAnySlotCounts) {
  Edge edge(std::get<0>(GetParam()), std::get<1>(GetParam()));
  tests::conforms(edge.ends());
}

INSTANTIATE_TEST_SUITE_P(Slots, InProcess, testing::Combine(testing::Values(1, 2, 3, 5), testing::Values(1, 2, 3, 5)));

TEST(InProcessChannel, SendCompletesOnlyWhenTaken) {
  Edge edge(2, 1);
  edge.channel.sender().send(1);
  EXPECT_FALSE(edge.channel.sender().sent(1));
  edge.channel.receiver().post(0);
  EXPECT_TRUE(edge.channel.sender().sent(1));
  EXPECT_TRUE(edge.channel.receiver().arrived(0));
}

TEST(InProcessChannel, RefusesSlotsInUseAndUnknownSlots) {
  Edge edge(2, 2);
  edge.channel.sender().send(0);
  EXPECT_THROW(edge.channel.sender().send(0), RunError);
  EXPECT_THROW(edge.channel.sender().send(2), RunError);
  EXPECT_THROW(edge.channel.receiver().arrived(-1), RunError);
  edge.channel.receiver().post(0);
  edge.channel.receiver().post(1);
  EXPECT_THROW(edge.channel.receiver().post(1), RunError);
  EXPECT_THROW(Edge(0, 1), RunError);
}

}  // namespace
}  // namespace minipipe::schedules
