// Replicas that hold shards: gathers of layers, gradients reduced after every microbatch or once per window.
#include "unit_tests/mpi/replica_world.hpp"

namespace minipipe::core {
namespace {

class ShardedUpdates {
 public:
  explicit ShardedUpdates(ReplicaWorld& world)
      : w(world), shards(get(w.memory->parameters)), gradients(w.memory->gradients.size(), 0.0F) {
    change_weights(-1);
  }

  void run(int updates, int microbatches) {
    for (std::int64_t u = 0; u < updates && !::testing::Test::HasFailure(); ++u) {
      std::fill(gradients.begin(), gradients.end(), 0.0F);
      put(w.memory->gradients, gradients);
      for (int m = 0; m < microbatches; ++m) {
        for (int l = 0; l < w.layers(); ++l) fetch(l, l + 1 < w.layers() ? l + 1 : -1, u);
        for (int l = w.layers() - 1; l >= 0; --l) {
          fetch(l, l - 1, u);
          backward(l, u, m, m + 1 == microbatches);
        }
      }
      w.wait_gradients(u);
      if (::testing::Test::HasFatalFailure()) return;
      expect_same(get(w.memory->gradients), gradients, "gradients of update " + std::to_string(u));
      change_weights(u);
      w.exchange->weights_changed(u);
      w.wait_weights();
      expect_same(get(w.memory->parameters), shards, "shards are not written");
    }
  }

  // Floats of gathers and of reduce-scatters that this replica must have sent.
  std::int64_t gathered = 0;
  std::int64_t scattered = 0;

 private:
  bool per_microbatch() const { return w.options().reduce_per_microbatch; }
  bool everyone_gets() const { return w.options().backward_masking; }

  void change_weights(std::int64_t update) {
    for (std::size_t b = 0; b < w.buckets().size(); ++b) {
      const Bucket& bucket = w.buckets()[b];
      const Values weight = w.weight(b, update);
      for (std::int64_t i = 0; i < w.own(bucket); ++i) {
        shards[static_cast<std::size_t>(bucket.shard_offset + i)] = weight[static_cast<std::size_t>(w.first(bucket) + i)];
      }
    }
    put(w.memory->parameters, shards);
    buffers = {-1, -1};
  }

  void count_gather(int layer) {
    if (layer < 0 || buffers[static_cast<std::size_t>(layer % 2)] == layer) return;
    buffers[static_cast<std::size_t>(layer % 2)] = layer;
    for (const Bucket& bucket : w.buckets()) {
      const std::int64_t takers = everyone_gets() ? w.comm.size() : std::ssize(bucket.holders);
      if (bucket.first_layer == layer) gathered += (takers - 1) * w.own(bucket);
    }
  }

  void fetch(int layer, int next, std::int64_t update) {
    w.exchange->fetch(layer, next);
    count_gather(layer);
    count_gather(next);
    const Values buffer = get(w.memory->layer_weights[static_cast<std::size_t>(layer % 2)]);
    Values want = buffer;
    for (std::size_t b = 0; b < w.buckets().size(); ++b) {
      if (w.buckets()[b].first_layer == layer) write(want, w.buckets()[b].parameters, w.weight(b, update - 1));
    }
    expect_same(buffer, want, "layer " + std::to_string(layer) + " of update " + std::to_string(update));
    w.rhythm.beat(*w.exchange);
  }

  void backward(int layer, std::int64_t update, int microbatch, bool last) {
    const std::int64_t number = 100 * update + microbatch;
    const auto& memory = w.memory->layer_gradients[static_cast<std::size_t>(layer % 2)];
    w.exchange->gradient_begins(layer);
    Values buffer = get(memory);
    if (per_microbatch()) {
      for (std::int64_t i = 0; i < w.made.layout.layer_floats[static_cast<std::size_t>(layer)]; ++i) {
        EXPECT_EQ(buffer[static_cast<std::size_t>(i)], 0.0F);
      }
    }
    w.rhythm.beat(*w.exchange);
    for (std::size_t b = 0; b < w.buckets().size(); ++b) {
      const Bucket& bucket = w.buckets()[b];
      if (bucket.first_layer != layer || bucket.number_of(w.me()) < 0) continue;
      const Values mine = w.my_gradient(b, number);
      const std::int64_t offset = w.made.layout.layer_offsets[static_cast<std::size_t>(layer)];
      if (per_microbatch()) {
        write(buffer, bucket.gradients, mine);
      } else {
        accumulate(bucket, mine, offset);
      }
      if (per_microbatch() || last) {
        expect_sum(b, update, microbatch, offset);
        scattered += bucket.floats - w.own(bucket);
      }
    }
    put(memory, buffer);
    w.exchange->gradient_done(layer, last);
  }

  // The window's gradients of this replica.
  void accumulate(const Bucket& bucket, const Values& mine, std::int64_t offset) {
    Values sum(mine.size());
    for_each_place(bucket.gradients, [&](std::int64_t i, std::int64_t at) {
      float& value = gradients[static_cast<std::size_t>(offset + at)];
      value += mine[static_cast<std::size_t>(i)];
      sum[static_cast<std::size_t>(i)] = value;
    });
    put(w.memory->gradients, bucket.gradients, sum, offset);
  }

  void expect_sum(std::size_t b, std::int64_t update, int microbatch, std::int64_t offset) {
    const Bucket& bucket = w.buckets()[b];
    const Values sum = sum_of(bucket.holders, bucket.floats, test_scale(bucket.holders, update), [&](int r, std::int64_t i) {
      if (per_microbatch()) return ReplicaWorld::gradient(r, b, 100 * update + microbatch, i);
      float value = 0;
      for (int m = 0; m <= microbatch; ++m) value += ReplicaWorld::gradient(r, b, 100 * update + m, i);
      return value;
    });
    const std::int64_t first = w.first(bucket);
    if (!per_microbatch()) {
      write(gradients, bucket.gradients, sum, offset, first, first + w.own(bucket));
      return;
    }
    for (std::int64_t i = 0; i < w.own(bucket); ++i) {
      gradients[static_cast<std::size_t>(bucket.shard_offset + i)] += sum[static_cast<std::size_t>(first + i)];
    }
  }

  ReplicaWorld& w;
  Values shards;
  Values gradients;
  std::array<int, 2> buffers{-1, -1};
};

ReplicaOptions fsdp() {
  ReplicaOptions options;
  options.mode = ReplicaMode::fsdp;
  return options;
}

ReplicaOptions sharded_units() {
  ReplicaOptions options;
  options.mode = ReplicaMode::sdp;
  options.sharded_units = true;
  return options;
}

void run(ReplicaWorld&& world, int updates, int microbatches) {
  ShardedUpdates sharded(world);
  sharded.run(updates, microbatches);
  EXPECT_EQ(world.exchange->traffic()[TrafficPurpose::parameter_gather], 4 * sharded.gathered);
  EXPECT_EQ(world.exchange->traffic()[TrafficPurpose::reduce_scatter], 4 * sharded.scattered);
  EXPECT_EQ(world.exchange->traffic().total(), 4 * (sharded.gathered + sharded.scattered));
}

void run(const ReplicaOptions& options, bool delays, int updates, int microbatches) {
  run(ReplicaWorld(options, options.sdp(), delays), updates, microbatches);
}

class ParallelSharded : public WithEitherMessages {};
INSTANTIATE_TEST_SUITE_P(Messages, ParallelSharded, either_messages(), name_of_messages);

TEST_P(ParallelSharded, fsdp_gathers_layers_and_adds_sums_to_shards) { run(fsdp(), false, 3, 2); }

TEST_P(ParallelSharded, fsdp_with_delays_never_stops) { run(fsdp(), true, 12, 3); }

TEST_P(ParallelSharded, fsdp_can_reduce_once_per_window) {
  ReplicaOptions options = fsdp();
  options.reduce_per_microbatch = false;
  run(options, true, 3, 3);
}

TEST_P(ParallelSharded, units_are_sharded_over_their_holders) { run(sharded_units(), true, 5, 2); }

TEST_P(ParallelSharded, units_can_be_reduced_once_per_window) {
  ReplicaOptions options = sharded_units();
  options.reduce_per_microbatch = false;
  run(options, true, 3, 2);
}

TEST_P(ParallelSharded, backward_masking_gathers_units_for_all) {
  ReplicaOptions options = sharded_units();
  options.backward_masking = true;
  run(options, true, 3, 2);
}

TEST_P(ParallelSharded, layouts_of_real_stages) {
  for (const ReplicaOptions& options : real_cases(true)) {
    SCOPED_TRACE(text_of(options));
    run(ReplicaWorld(real_layout(options, Communicator::duplicate(MPI_COMM_WORLD)), false), 2, 2);
  }
}

// Of L layers, both buffers of the last forward still hold theirs when the backward begins: 3 P (k-1)/k less two layers.
TEST_P(ParallelSharded, traffic_of_fsdp_is_two_gathers_and_a_scatter) {
  ReplicaWorld world(fsdp(), false);
  ShardedUpdates(world).run(1, 1);
  const std::int64_t mine = world.exchange->traffic().total();
  std::int64_t sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT64_T, MPI_SUM, world.comm.get());
  std::int64_t want = 0;
  for (const Bucket& bucket : world.buckets()) {
    want += (bucket.first_layer < made_up_layers - 2 ? 3 : 2) * 4 * bucket.floats * (world.comm.size() - 1);
  }
  EXPECT_EQ(sum, want);
}

TEST_P(ParallelSharded, evaluation_has_the_full_layers) {
  for (const ReplicaOptions& options : {fsdp(), sharded_units()}) {
    ReplicaWorld world(options, options.sdp(), true);
    ShardedUpdates sharded(world);  // weights of version -1
    for (std::size_t l = 0; l < made_up_layers; ++l) {
      Kokkos::deep_copy(world.memory->full, 4.0F);
      Values want(world.memory->full.size(), 4.0F);
      world.exchange->assemble(static_cast<int>(l), world.memory->full);
      for (std::size_t b = 0; b < world.buckets().size(); ++b) {
        if (world.buckets()[b].first_layer == static_cast<int>(l)) write(want, world.buckets()[b].full, world.weight(b, -1));
      }
      expect_same(get(world.memory->full), want, "layer " + std::to_string(l));
      world.rhythm.beat(*world.exchange);
    }
    EXPECT_GT(world.exchange->traffic()[TrafficPurpose::evaluation], 0);
  }
}

// The first replica comes late. The others then still need their gradients of layer 3 when they ask for its buffer again.
TEST_P(ParallelSharded, a_gradient_buffer_is_cleared_when_it_has_been_read) {
  ReplicaWorld world(fsdp(), false);
  const std::size_t b = 2;
  const Bucket& bucket = world.buckets()[b];
  Kokkos::deep_copy(world.memory->gradients, 0.0F);
  world.exchange->gradient_begins(3);
  put(world.memory->layer_gradients[1], bucket.gradients, world.my_gradient(b, 0));
  if (world.me() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  world.exchange->gradient_done(3, true);
  world.exchange->gradient_begins(1);
  world.wait_gradients(0);
  const Values sum = sum_of(bucket.holders, bucket.floats, test_scale(bucket.holders, 0),
                            [&](int r, std::int64_t i) { return ReplicaWorld::gradient(r, b, 0, i); });
  const std::int64_t first = world.first(bucket);
  const Values want(sum.begin() + first, sum.begin() + first + world.own(bucket));
  expect_same(get(slice<float>(world.memory->gradients, bucket.shard_offset, world.own(bucket))), want, "shard");
}

// A layer fetched ahead and then not wanted, and one that changed under way.
TEST_P(ParallelSharded, what_was_fetched_ahead_is_not_used_after_new_weights) {
  ReplicaWorld world(fsdp(), false, true);
  ShardedUpdates sharded(world);
  for (int u = 0; u < 3; ++u) {
    world.exchange->fetch(0, 1);
    world.exchange->fetch(3, 2);
    world.wait_gradients(u);
    world.exchange->weights_changed(u);
    for (int l = 0; l < made_up_layers; ++l) {
      for (auto& buffer : world.memory->layer_weights) Kokkos::deep_copy(buffer, 0.0F);
      world.exchange->fetch(l, -1);
      const Values buffer = get(world.memory->layer_weights[static_cast<std::size_t>(l % 2)]);
      Values want(buffer.size(), 0.0F);
      for (std::size_t b = 0; b < world.buckets().size(); ++b) {
        if (world.buckets()[b].first_layer == l) write(want, world.buckets()[b].parameters, world.weight(b, -1));
      }
      expect_same(buffer, want, "layer " + std::to_string(l));
    }
  }
}

TEST_P(ParallelSharded, averages_of_shards_are_refused) {
  ReplicaOptions options = sharded_units();
  options.average_period = 2;
  EXPECT_THROW(ReplicaWorld(options, true), InputError);
}

class ParallelMemory : public WithEitherMessages {};
INSTANTIATE_TEST_SUITE_P(Messages, ParallelMemory, either_messages(), name_of_messages);

TEST_P(ParallelMemory, bytes_are_those_planned) {
  std::vector<ReplicaOptions> cases(3);
  cases[1].mode = ReplicaMode::zero1;
  cases[2].mode = ReplicaMode::sdp;
  cases.push_back(fsdp());
  cases.push_back(sharded_units());
  for (const ReplicaOptions& options : cases) {
    ReplicaWorld world(options, options.sdp());
    EXPECT_EQ(world.exchange->bytes(), exchange_bytes(world.made.layout));
    EXPECT_GT(world.exchange->bytes(), 0U);
  }
}

// Contiguous buckets are sent from where they lie: only what other holders send for the own shard needs memory.
TEST_P(ParallelMemory, contiguous_buckets_need_the_others_parts_of_the_own_shard) {
  MadeUp made;
  made.layout.options = ReplicaWorld::with_place(ReplicaOptions{}, Communicator::duplicate(MPI_COMM_WORLD));
  const int k = made.layout.options.replicas;
  Bucket bucket;
  for (int r = 0; r < k; ++r) bucket.holders.push_back(r);
  bucket.floats = 4096;
  bucket.parameters = bucket.gradients = bucket.full = {{16, 1, 4096, 4096}};
  made.layout.buckets = {bucket};
  made.layout.layers = {{bucket}};
  if (on_host) {
    const int me = made.layout.options.replica;
    const std::int64_t own = bucket.shard_end(me) - bucket.shard_begin(me);
    EXPECT_NEAR(static_cast<double>(own), 4096.0 / k, 16);
    EXPECT_EQ(exchange_bytes(made.layout), static_cast<std::size_t>(transfers_in_flight * own * (k - 1)) * sizeof(float));
    // Sharded: all parts of one bucket together, each of them in whole 16s.
    made.layout.options.mode = ReplicaMode::fsdp;
    made.layout.buckets[0].shard_offset = made.layout.layers[0][0].shard_offset = 0;
    const std::size_t whole = static_cast<std::size_t>(own * (k - 1)) * sizeof(float);
    EXPECT_GE(exchange_bytes(made.layout), whole);
    EXPECT_LE(exchange_bytes(made.layout), whole + transfers_in_flight * (k - 1) * 16 * sizeof(float));
  }
}

}  // namespace
}  // namespace minipipe::core
