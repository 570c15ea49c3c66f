#include <gtest/gtest.h>
#include <mpi.h>

#include "core/comm/control.hpp"
#include "unit_tests/mpi/wait_until.hpp"

namespace minipipe::core {
namespace {

class ControlTest : public ::testing::Test {
 protected:
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  Control control{comm.get()};
  bool root = comm.rank() == 0;
  int last = comm.size() - 1;

  void barrier() { MPI_Barrier(comm.get()); }
};

TEST_F(ControlTest, nothing_comes_unasked) {
  control.begin_segment(0);
  EXPECT_FALSE(control.poll_stop_request());
  EXPECT_EQ(control.poll_end(), std::nullopt);
  EXPECT_EQ(control.stop_reason(), StopReason::none);
  control.finish();
  EXPECT_FALSE(control.poll_stop_request());
}

TEST_F(ControlTest, a_request_of_any_rank_reaches_rank_0_only) {
  control.begin_segment(0);
  if (comm.rank() == last) {
    control.request_stop(StopReason::signal);
    control.request_stop(StopReason::time_limit);  // only the first counts
  }
  if (root) {
    EXPECT_TRUE(wait_until([&] { return control.poll_stop_request(); }));
    EXPECT_EQ(control.stop_reason(), StopReason::signal);
    EXPECT_TRUE(control.poll_stop_request());
  } else {
    EXPECT_FALSE(control.poll_stop_request());
  }
  control.finish();
}

TEST_F(ControlTest, rank_0_can_ask_itself) {
  if (root) {
    control.request_stop(StopReason::time_limit);
    EXPECT_TRUE(control.poll_stop_request());
    EXPECT_EQ(control.stop_reason(), StopReason::time_limit);
  }
  control.finish();
}

TEST_F(ControlTest, an_end_reaches_the_others_once) {
  control.begin_segment(4);
  if (root) {
    control.announce_end(96);
    EXPECT_EQ(control.poll_end(), std::nullopt);
  } else {
    std::optional<std::int64_t> end;
    EXPECT_TRUE(wait_until([&] { return (end = control.poll_end()).has_value(); }));
    EXPECT_EQ(end, 96);
    EXPECT_EQ(control.poll_end(), std::nullopt);
  }
  control.finish();
}

TEST_F(ControlTest, ends_of_earlier_segments_are_dropped_and_of_later_ones_kept) {
  if (root) {
    control.begin_segment(1);
    control.announce_end(10);
    control.begin_segment(2);
    control.announce_end(20);
    control.announce_end(21);
    control.begin_segment(3);
    control.announce_end(30);
  }
  barrier();
  if (!root) {
    const auto next = [&] {
      std::optional<std::int64_t> end;
      EXPECT_TRUE(wait_until([&] { return (end = control.poll_end()).has_value(); }));
      return end.value_or(-1);
    };
    control.begin_segment(2);
    EXPECT_EQ(next(), 20);
    EXPECT_EQ(next(), 21);
    EXPECT_EQ(control.poll_end(), std::nullopt);
    control.begin_segment(3);
    EXPECT_EQ(next(), 30);
    EXPECT_EQ(control.poll_end(), std::nullopt);
  }
  control.finish();
}

TEST_F(ControlTest, finish_takes_what_nobody_polled) {
  control.begin_segment(1);
  control.request_stop(StopReason::signal);  // from every rank
  if (root) {
    for (int i = 0; i < 5; ++i) {
      control.announce_end(i);
    }
  }
  control.finish();
  int there = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm.get(), &there, MPI_STATUS_IGNORE);
  EXPECT_EQ(there, 0);
  EXPECT_EQ(control.poll_end(), std::nullopt);
  EXPECT_EQ(control.poll_stop_request(), root);
  // And again: counts go on where they were.
  control.begin_segment(2);
  if (root) {
    control.announce_end(7);
  } else {
    EXPECT_TRUE(wait_until([&] { return control.poll_end() == 7; }));
  }
  control.finish();
  control.finish();
}

TEST_F(ControlTest, stop_and_end_form_a_conversation) {
  for (std::int64_t segment = 0; segment < 20; ++segment) {
    Control talk(comm.get());
    talk.begin_segment(segment);
    if (comm.rank() == segment % comm.size()) {
      talk.request_stop(StopReason::signal);
    }
    if (root) {
      EXPECT_TRUE(wait_until([&] { return talk.poll_stop_request(); }));
      talk.announce_end(segment * 8);
    } else {
      std::optional<std::int64_t> end;
      EXPECT_TRUE(wait_until([&] { return (end = talk.poll_end()).has_value(); }));
      EXPECT_EQ(end, segment * 8);
    }
    talk.finish();
  }
  control.finish();
}

}  // namespace
}  // namespace minipipe::core
