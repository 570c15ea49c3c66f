// Replicas that hold whole buckets: ddp, zero1, sdp with either masking, averages. Every array is compared as a whole, so that
// what is not exchanged is seen to stay.
#include "unit_tests/mpi/replica_world.hpp"

namespace minipipe::core {
namespace {

// One update: backward, sums, new weights. `before`: values of the parameters' array; becomes what it must be after.
class Update {
 public:
  explicit Update(ReplicaWorld& world) : w(world), parameters(get(w.memory->parameters)) {}

  void run(std::int64_t update) {
    backward(update);
    w.wait_gradients(update);
    if (::testing::Test::HasFatalFailure()) return;
    expect_same(get(w.memory->gradients), expected_gradients(update), "gradients of update " + std::to_string(update));
    step(update);
    put(w.memory->parameters, parameters);
    w.exchange->weights_changed(update);
    w.wait_weights();
    if (::testing::Test::HasFatalFailure()) return;
    exchanged(update);
    expect_same(get(w.memory->parameters), parameters, "parameters of update " + std::to_string(update));
  }

 private:
  bool averaging() const { return w.options().average_period > 0; }

  // A bucket's gradients are there when the backward has passed its first layer, and not before.
  void backward(std::int64_t update) {
    gradients = Values(w.memory->gradients.size(), 999.0F);
    put(w.memory->gradients, gradients);
    for (int l = w.layers() - 1; l >= 0; --l) {
      for (std::size_t b = 0; b < w.buckets().size(); ++b) {
        if (w.buckets()[b].first_layer != l) continue;
        const Values mine = w.my_gradient(b, update);
        write(gradients, w.buckets()[b].gradients, mine);
        put(w.memory->gradients, w.buckets()[b].gradients, mine);
      }
      w.exchange->gradient_done(l, true);
      w.rhythm.beat(*w.exchange);
    }
  }

  Values expected_gradients(std::int64_t update) {
    Values want = gradients;
    for (std::size_t b = 0; b < w.buckets().size(); ++b) {
      const Bucket& bucket = w.buckets()[b];
      if (bucket.number_of(w.me()) < 0) continue;
      const std::vector<int> holders = averaging() ? std::vector<int>{w.me()} : bucket.holders;
      const Values sum = sum_of(holders, bucket.floats, test_scale(holders, update),
                                [&](int r, std::int64_t i) { return ReplicaWorld::gradient(r, b, update, i); });
      if (w.options().mode == ReplicaMode::zero1) {
        write(want, bucket.gradients, sum, 0, w.first(bucket), w.first(bucket) + w.own(bucket));
      } else {
        write(want, bucket.gradients, sum);
      }
    }
    return want;
  }

  float local_weight(int r, std::size_t b, std::int64_t update, std::int64_t i) const {
    return averaging() ? ReplicaWorld::gradient(r, b, 5000 + update, i) : w.weight(b, update)[static_cast<std::size_t>(i)];
  }

  // What this replica's optimizer writes.
  void step(std::int64_t update) {
    for (std::size_t b = 0; b < w.buckets().size(); ++b) {
      const Bucket& bucket = w.buckets()[b];
      if (bucket.number_of(w.me()) < 0) continue;
      if (averaging()) {
        write(parameters, bucket.parameters,
              sum_of({w.me()}, bucket.floats, 1, [&](int r, std::int64_t i) { return local_weight(r, b, update, i); }));
      } else if (w.options().mode == ReplicaMode::zero1) {
        write(parameters, bucket.parameters, w.weight(b, update), 0, w.first(bucket), w.first(bucket) + w.own(bucket));
      } else {
        write(parameters, bucket.parameters, w.weight(b, update));
      }
    }
  }

  // What others then give it.
  void exchanged(std::int64_t update) {
    const ReplicaOptions& o = w.options();
    const bool average = averaging() && (update + 1) % o.average_period == 0;
    for (std::size_t b = 0; b < w.buckets().size(); ++b) {
      const Bucket& bucket = w.buckets()[b];
      const bool held = bucket.number_of(w.me()) >= 0;
      if (o.mode == ReplicaMode::zero1) write(parameters, bucket.parameters, w.weight(b, update));
      if (held ? average : o.backward_masking && (update + 1) % o.refresh_period == 0) {
        const std::vector<int> from = average || held ? bucket.holders : std::vector<int>{bucket.sender};
        if (!averaging()) {
          write(parameters, bucket.parameters, w.weight(b, update));
        } else {
          write(parameters, bucket.parameters,
                sum_of(from, bucket.floats, 1.0 / static_cast<double>(from.size()),
                       [&](int r, std::int64_t i) { return local_weight(r, b, update, i); }));
        }
      }
    }
  }

  ReplicaWorld& w;
  Values parameters;
  Values gradients;
};

ReplicaOptions sdp() {
  ReplicaOptions options;
  options.mode = ReplicaMode::sdp;
  return options;
}

void updates(ReplicaWorld& world, int count, std::int64_t first = 0) {
  Update update(world);
  world.exchange->start_at(first);
  for (int u = 0; u < count && !::testing::Test::HasFatalFailure(); ++u) update.run(first + u);
}

class ParallelWhole : public WithEitherMessages {};
INSTANTIATE_TEST_SUITE_P(Messages, ParallelWhole, either_messages(), name_of_messages);

TEST_P(ParallelWhole, ddp_sums_all_gradients_everywhere) {
  ReplicaWorld world(ReplicaOptions{}, false);
  updates(world, 3);
}

TEST_P(ParallelWhole, zero1_sums_the_own_shards_and_gathers_the_weights) {
  ReplicaOptions options;
  options.mode = ReplicaMode::zero1;
  ReplicaWorld world(options, false, true);
  updates(world, 4, 11);
}

TEST_P(ParallelWhole, sdp_sums_among_holders_only) {
  ReplicaWorld world(sdp(), true);
  updates(world, 3);
}

TEST_P(ParallelWhole, sdp_with_delays_and_overlapping_groups_never_stops) {
  ReplicaWorld world(sdp(), true, true);
  updates(world, 100);
}

TEST_P(ParallelWhole, backward_masking_refreshes_what_is_not_held) {
  for (const std::int64_t period : {1, 3}) {
    ReplicaOptions options = sdp();
    options.backward_masking = true;
    options.refresh_period = period;
    ReplicaWorld world(options, true, true);
    updates(world, 7);
    std::int64_t sent = 0;
    for (const Bucket& bucket : world.buckets()) {
      if (bucket.sender == world.me())
        sent += 7 / period * 4 * bucket.floats * (world.comm.size() - std::ssize(bucket.holders));
    }
    EXPECT_EQ(world.exchange->traffic()[TrafficPurpose::refresh], sent);
  }
}

TEST_P(ParallelWhole, averages_are_of_parameters_every_so_many_updates) {
  for (const bool backward : {false, true}) {
    ReplicaOptions options = sdp();
    options.average_period = 3;
    options.backward_masking = backward;
    ReplicaWorld world(options, true, true);
    updates(world, 7, 2);
    EXPECT_EQ(world.exchange->traffic()[TrafficPurpose::reduce_scatter], 0);
    EXPECT_EQ(world.exchange->traffic()[TrafficPurpose::all_gather], 0);
    EXPECT_GT(world.exchange->traffic()[TrafficPurpose::average], 0);
  }
}

TEST_P(ParallelWhole, layouts_of_real_stages) {
  for (const ReplicaOptions& options : real_cases(false)) {
    SCOPED_TRACE(text_of(options));
    ReplicaWorld world(real_layout(options, Communicator::duplicate(MPI_COMM_WORLD)), false);
    updates(world, 2);
    EXPECT_EQ(world.exchange->bytes(), exchange_bytes(world.made.layout));
  }
}

TEST_P(ParallelWhole, evaluation_has_the_full_layers_of_the_first_holders) {
  ReplicaWorld world(sdp(), true, true);
  updates(world, 1);
  for (int repeat = 0; repeat < 3; ++repeat) {
    for (std::size_t l = 0; l < made_up_layers; ++l) {
      Kokkos::deep_copy(world.memory->full, 4.0F);
      Values want(world.memory->full.size(), 4.0F);
      world.exchange->assemble(static_cast<int>(l), world.memory->full);
      for (const Bucket& bucket : world.made.layout.layers[l]) {
        for (std::size_t b = 0; b < world.buckets().size(); ++b) {
          if (world.buckets()[b].floats == bucket.floats) write(want, bucket.full, world.weight(b, 0));
        }
      }
      expect_same(get(world.memory->full), want, "layer " + std::to_string(l));
      world.rhythm.beat(*world.exchange);
    }
  }
  std::int64_t sent = 0;
  for (const auto& layer : world.made.layout.layers) {
    for (const Bucket& bucket : layer) {
      if (bucket.number_of(world.me()) == 0) sent += 3 * 4 * bucket.floats * (world.comm.size() - std::ssize(bucket.holders));
    }
  }
  EXPECT_EQ(world.exchange->traffic()[TrafficPurpose::evaluation], sent);
}

TEST_P(ParallelWhole, numbers_are_added_in_ascending_order_of_replicas) {
  ReplicaWorld world(ReplicaOptions{}, false, true);
  const auto number = [](int r, int i) { return (r % 2 == 0 ? 1e16 : -1e16) + r * 3.7 + i; };
  for (int i = 0; i < 20; ++i) {
    double want = number(0, i);
    for (int r = 1; r < world.comm.size(); ++r) want += number(r, i);
    EXPECT_EQ(world.exchange->sum_over_replicas({number(world.me(), i), 1.0}),
              (std::vector<double>{want, static_cast<double>(world.comm.size())}));
    world.rhythm.beat(*world.exchange);
  }
  EXPECT_EQ(world.exchange->traffic()[TrafficPurpose::norm], 20 * 2 * 8 * (world.comm.size() - 1));
  EXPECT_TRUE(world.exchange->sum_over_replicas({}).empty());
}

// The rest of the mode's formulas is in bytes over all replicas: there shards' rounding drops out.
std::int64_t over_replicas(const ReplicaWorld& world, std::int64_t bytes) {
  std::int64_t sum = 0;
  MPI_Allreduce(&bytes, &sum, 1, MPI_INT64_T, MPI_SUM, world.comm.get());
  return sum;
}

TEST_P(ParallelWhole, traffic_is_that_of_a_ring) {
  for (const ReplicaMode mode : {ReplicaMode::ddp, ReplicaMode::zero1, ReplicaMode::sdp}) {
    ReplicaOptions options;
    options.mode = mode;
    const bool subsets = mode == ReplicaMode::sdp;
    ReplicaWorld world(options, subsets);
    updates(world, 2);
    std::int64_t scattered = 0;
    std::int64_t gathered = 0;
    std::int64_t all = 0;
    for (const Bucket& bucket : world.buckets()) {
      const std::int64_t k = std::ssize(bucket.holders);
      all += 2 * 4 * bucket.floats * (k - 1);
      if (bucket.number_of(world.me()) < 0) continue;
      scattered += 2 * 4 * (bucket.floats - world.own(bucket));
      gathered += 2 * 4 * (k - 1) * world.own(bucket);
    }
    const Traffic& traffic = world.exchange->traffic();
    const auto purpose = mode == ReplicaMode::zero1 ? TrafficPurpose::parameter_gather : TrafficPurpose::all_gather;
    EXPECT_EQ(traffic[TrafficPurpose::reduce_scatter], scattered);
    EXPECT_EQ(traffic[purpose], gathered);
    EXPECT_EQ(traffic.total(), scattered + gathered);
    // 2 P (k-1)/k elements for each of k holders.
    EXPECT_EQ(over_replicas(world, traffic.total()), 2 * all);
  }
}

TEST_P(ParallelWhole, seconds_are_of_the_messages_and_of_waiting) {
  ReplicaWorld world(ReplicaOptions{}, false);
  // The last replica comes late, so the others wait for it.
  if (world.me() == world.comm.size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  updates(world, 1);
  const ExchangeSeconds& seconds = world.exchange->gradient_seconds();
  EXPECT_GT(seconds.total, 0);
  EXPECT_GE(seconds.total, seconds.exposed);
  // Whoever comes first waits.
  double waited = seconds.exposed;
  MPI_Allreduce(MPI_IN_PLACE, &waited, 1, MPI_DOUBLE, MPI_MAX, world.comm.get());
  EXPECT_GT(waited, 0);
}

TEST_P(ParallelWhole, calls_out_of_turn_are_errors) {
  ReplicaWorld world(ReplicaOptions{}, false);
  EXPECT_THROW(world.exchange->gradients_ready(1), RunError);
  EXPECT_THROW(world.exchange->weights_changed(1), RunError);
  ReplicaOptions options = world.options();
  options.replicas += 1;
  EXPECT_THROW(ReplicaWorld(make_layout(options, false), false), RunError);
}

TEST_P(ParallelWhole, replicas_must_agree_about_the_layout) {
  const Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  MadeUp made = make_layout(ReplicaWorld::with_place({}, comm), true);
  const ReplicaWorld alike(made, false);
  EXPECT_NO_THROW(alike.exchange->check_layouts(comm.get()));
  if (comm.rank() == 1) std::swap(made.layout.buckets[4].holders, made.layout.buckets[6].holders);
  const ReplicaWorld different(made, false);
  EXPECT_THROW(different.exchange->check_layouts(comm.get()), RunError);
}

// The message is larger than what MPI sends ahead, so it is under way for good.
TEST(ParallelPeers, an_exchange_whose_peers_are_gone_can_be_destroyed) {
  MadeUp made = make_layout(ReplicaWorld::with_place({}, Communicator::duplicate(MPI_COMM_WORLD)), false);
  Bucket& bucket = made.layout.buckets.front();
  bucket.floats = 1 << 20;
  bucket.parameters = bucket.gradients = bucket.full = {{0, 1, 1 << 20, 0}};
  made.sizes.gradients = bucket.floats;
  made.layout.buckets.resize(1);
  made.layout.layers.assign(made_up_layers, {});
  ReplicaWorld world(made, false);
  std::weak_ptr<ReplicaWorld::Memory> memory = world.memory;
  if (world.me() != 0) {
    world.exchange->gradient_done(0, true);
    EXPECT_FALSE(world.exchange->gradients_ready(0));
  }
  world.exchange.reset();
  world.memory.reset();
  if (world.me() != 0) {
    EXPECT_FALSE(memory.expired());
  }
  MPI_Barrier(world.comm.get());
  if (world.me() == 0) {
    int there = 1;
    while (there != 0) {
      MPI_Message message;
      MPI_Status status;
      MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, world.comm.get(), &there, &message, &status);
      if (there != 0) {
        int count = 0;
        MPI_Get_count(&status, MPI_FLOAT, &count);
        Values dropped(static_cast<std::size_t>(count));
        MPI_Mrecv(dropped.data(), count, MPI_FLOAT, &message, MPI_STATUS_IGNORE);
      }
    }
  }
  MPI_Barrier(world.comm.get());
}

}  // namespace
}  // namespace minipipe::core
