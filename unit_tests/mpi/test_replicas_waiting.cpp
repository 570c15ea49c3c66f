// What a stage is told while messages among its replicas are under way, asked as the executor asks.
#include "core/train/stop_rule.hpp"
#include "unit_tests/core/train/decks.hpp"
#include "unit_tests/mpi/replica_world.hpp"

namespace minipipe::core {
namespace {

// A single bucket, which nothing is left to hide behind.
MadeUp one_bucket() {
  MadeUp made = make_layout(ReplicaWorld::with_place({}, Communicator::duplicate(MPI_COMM_WORLD)), false);
  Bucket& bucket = made.layout.buckets.front();
  bucket.floats = 1 << 14;
  bucket.first_layer = bucket.last_layer = 0;
  bucket.parameters = bucket.gradients = bucket.full = {{0, 1, bucket.floats, 0}};
  made.sizes.gradients = made.sizes.parameters = bucket.floats;
  made.layout.buckets.resize(1);
  made.layout.layers.assign(made_up_layers, {});
  return made;
}

TEST(ReplicasWaiting, gradients_under_way_do_not_hold_up_forwards_and_their_wait_is_told) {
  ReplicaWorld world(one_bucket(), false);
  constexpr double late_s = 0.02;
  if (world.me() == 0) {
    MPI_Barrier(world.comm.get());
    std::this_thread::sleep_for(std::chrono::duration<double>(late_s));
    world.exchange->gradient_done(0, true);
  } else {
    world.exchange->gradient_done(0, true);
    EXPECT_TRUE(world.exchange->weights_ready());
    EXPECT_FALSE(world.exchange->gradients_ready(0));
    MPI_Barrier(world.comm.get());
  }
  EXPECT_TRUE(wait_until([&] { return world.exchange->weights_ready() && world.exchange->gradients_ready(0); }));
  const ExchangeSeconds& seconds = world.exchange->gradient_seconds();
  EXPECT_GE(seconds.total, seconds.exposed);
  if (world.me() != 0) {
    EXPECT_GE(seconds.exposed, late_s);
  }
}

// Averages are of weights: they do hold up forwards.
TEST(ReplicasWaiting, averages_under_way_hold_up_forwards) {
  MadeUp made = one_bucket();
  made.layout.options.mode = ReplicaMode::sdp;
  made.layout.options.average_period = 1;
  ReplicaWorld world(made, false);
  const auto update = [&] {
    world.exchange->gradient_done(0, true);
    ASSERT_TRUE(wait_until([&] { return world.exchange->weights_ready() && world.exchange->gradients_ready(0); }));
    world.exchange->weights_changed(0);
  };
  if (world.me() == 0) MPI_Barrier(world.comm.get());
  update();
  if (world.me() != 0) {
    EXPECT_FALSE(world.exchange->weights_ready());
    MPI_Barrier(world.comm.get());
  }
  world.wait_weights();
  EXPECT_EQ(world.exchange->traffic()[TrafficPurpose::reduce_scatter], 0);
}

// First stages of replicas that go as fast as they may, the first one with pauses: the segment's end, which it announces at
// some time, is ahead of all of them.
TEST(ReplicasWaiting, nobody_is_beyond_an_end_that_is_announced) {
  // The run's first rank is not the job's.
  const Communicator comm = Communicator::split(MPI_COMM_WORLD, 0, -Communicator::duplicate(MPI_COMM_WORLD).rank());
  const Deck deck = tests::small_deck({"parallel.data=" + std::to_string(comm.size()), "run.grace=0"});
  std::vector<int> followers;
  for (int r = 1; r < comm.size(); ++r) followers.push_back(r);
  const StopSignal signal;
  std::uint64_t calls = 0;
  for (int round = 0; round < 40; ++round) {
    Control control(comm.get());
    StopRule rule(
        deck, comm.get(), control, signal, [] { return 0.0; }, 3, followers);
    const std::int64_t first = 8;
    control.begin_segment(round);
    rule.begin_segment(round % 2 == 0, first);
    schedules::StageState state;
    state.forwards = first;
    state.segment_end = 400;
    MPI_Barrier(comm.get());
    ASSERT_TRUE(wait_until([&] {
      if (comm.rank() == 0 && state.forwards == first + round) control.request_stop(StopReason::signal);
      if (const auto end = rule.poll(state)) {
        EXPECT_GE(*end, state.forwards);
        EXPECT_LT(*end, state.segment_end);
        state.segment_end = *end;
      }
      const std::int64_t limit = std::min(rule.admitted(), state.segment_end);
      // Rank 0 passes a microbatch every few polls.
      if (state.forwards < limit && (comm.rank() != 0 || noise(3, static_cast<std::uint64_t>(round), ++calls, 0) > 0.8F))
        ++state.forwards;
      return state.forwards == state.segment_end;
    }));
    control.finish();
    std::int64_t bounds[2] = {state.segment_end, -state.segment_end};
    MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_INT64_T, MPI_MAX, comm.get());
    EXPECT_EQ(bounds[0], -bounds[1]);
  }
}

}  // namespace
}  // namespace minipipe::core
