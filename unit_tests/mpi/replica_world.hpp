// Replicas of a made-up stage, one per rank: layouts with odd sizes, strided pieces and groups of holders that overlap, arrays
// whose gaps must stay untouched, and what they must hold, computed by every rank alone from all ranks' values.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/mpi_error.hpp"
#include "core/parallel/exchange_plans.hpp"
#include "core/parallel/replica_exchange.hpp"
#include "schedules/error.hpp"
#include "unit_tests/mpi/host_link.hpp"
#include "unit_tests/mpi/wait_until.hpp"

namespace minipipe::core {

// In [-1, 1), of full precision, so that sums in another order differ.
inline float noise(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  std::uint64_t x =
      a * 0x9E3779B97F4A7C15ULL + b * 0xC2B2AE3D27D4EB4FULL + c * 0x165667B19E3779F9ULL + d * 0xD6E8FEB86659FD93ULL;
  for (int i = 0; i < 3; ++i) {
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ULL;
  }
  return static_cast<float>(x >> 40) / static_cast<float>(1 << 23) - 1.0F;
}

using Values = std::vector<float>;

inline Values get(const Vector<float>& array) {
  Values values(array.size());
  Kokkos::deep_copy(Kokkos::View<float*, Kokkos::HostSpace, Unmanaged>(values.data(), values.size()), array);
  return values;
}

inline void put(const Vector<float>& array, const Values& values) {
  Kokkos::deep_copy(array, Kokkos::View<const float*, Kokkos::HostSpace, Unmanaged>(values.data(), values.size()));
}

// Elements at the pieces, by index in linear order.
template <class Body>
void for_each_place(const Pieces& pieces, const Body& body) {
  std::int64_t i = 0;
  for (const Piece& piece : pieces) {
    for (std::int64_t r = 0; r < piece.rows; ++r) {
      for (std::int64_t c = 0; c < piece.columns; ++c) body(i++, piece.offset + r * piece.stride + c);
    }
  }
}

// Elements [begin, begin + count) of `from` to the places with the same indices.
inline void write(Values& array, const Pieces& pieces, const Values& from, std::int64_t shift = 0, std::int64_t begin = 0,
                  std::int64_t end = INT64_MAX) {
  for_each_place(pieces, [&](std::int64_t i, std::int64_t at) {
    if (i >= begin && i < end) array[static_cast<std::size_t>(shift + at)] = from[static_cast<std::size_t>(i)];
  });
}

// `values` to the places of the array, which the exchange may use elsewhere meanwhile.
inline void put(const Vector<float>& array, const Pieces& pieces, const Values& values, std::int64_t shift = 0) {
  const float* next = values.data();
  for (const Piece& piece : pieces) {
    for (std::int64_t r = 0; r < piece.rows; ++r, next += piece.columns) {
      Kokkos::deep_copy(
          slice(array, shift + piece.offset + r * piece.stride, piece.columns),
          Kokkos::View<const float*, Kokkos::HostSpace, Unmanaged>(next, static_cast<std::size_t>(piece.columns)));
    }
  }
}

// The same bits everywhere; tells the first difference only.
inline void expect_same(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << " and should be " << want[i];
      return;
    }
  }
}

struct ArraySizes {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;
  std::int64_t layer_weights = 0;
  std::int64_t layer_gradients = 0;
  std::int64_t full = 0;
};

// Lays pieces of a bucket out in an array, with gaps: as one run, as rows with a stride, or as several of both.
enum class Shape { run, rows, mixed };
inline Pieces place(Shape shape, std::int64_t floats, std::int64_t gap, std::int64_t& end) {
  Pieces pieces;
  end += gap;
  const auto add_run = [&](std::int64_t n) {
    if (n > 0) pieces.push_back({end, 1, n, n});
    end += n;
  };
  const auto add_rows = [&](std::int64_t n, std::int64_t columns) {
    const std::int64_t rows = n / columns;
    if (rows > 0) pieces.push_back({end, rows, columns, columns + gap});
    end += rows * (columns + gap);
    add_run(n % columns);
    end += gap;
  };
  if (shape == Shape::run) add_run(floats);
  if (shape == Shape::rows) add_rows(floats, 7);
  if (shape == Shape::mixed) {
    add_run(floats / 3);
    end += gap;
    add_rows(floats - floats / 3, 5);
  }
  return pieces;
}

struct BucketShape {
  std::vector<int> holders;
  std::int64_t floats;
  int first_layer;
  int last_layer;
  Shape shape;
};

constexpr int made_up_layers = 5;

// `subsets`: groups that differ and overlap, one replica alone among them; else all replicas hold everything.
inline std::vector<BucketShape> made_up_buckets(int replicas, bool subsets, bool one_layer_each) {
  std::vector<int> all;
  for (int r = 0; r < replicas; ++r) all.push_back(r);
  const auto some = [&](std::vector<int> holders) { return subsets ? holders : all; };
  const int last = replicas - 1;
  std::vector<int> but_first(all.begin() + 1, all.end());
  std::vector<int> but_last(all.begin(), all.end() - 1);
  return {{all, 37, 4, 4, Shape::run},
          {some({0, last}), 175, 3, 3, Shape::rows},
          {some(but_first), 2051, 3, 3, Shape::mixed},
          {all, 9001, 2, one_layer_each ? 2 : 3, Shape::mixed},
          {some({0}), 66, 2, 2, Shape::rows},
          {some(but_last), 20011, 1, 1, Shape::run},
          {some({last}), 129, 1, 1, Shape::run},
          {some({0, last}), 3, 0, 0, Shape::run},
          {all, 512, 0, 0, Shape::run}};
}

struct MadeUp {
  ExchangeLayout layout;
  ArraySizes sizes;
};

inline MadeUp make_layout(ReplicaOptions options, bool subsets) {
  MadeUp made;
  made.layout.options = options;
  made.layout.layers.resize(made_up_layers);
  std::vector<std::int64_t> weights_end(made_up_layers, 0);
  std::vector<std::int64_t> gradients_end(made_up_layers, 0);
  std::vector<std::int64_t> full_end(made_up_layers, 0);
  for (const BucketShape& shape : made_up_buckets(options.replicas, subsets, options.sharded())) {
    Bucket bucket;
    bucket.holders = shape.holders;
    bucket.floats = shape.floats;
    bucket.first_layer = shape.first_layer;
    bucket.last_layer = shape.last_layer;
    bucket.sender = bucket.holders[made.layout.buckets.size() % bucket.holders.size()];
    const int number = bucket.number_of(options.replica);
    const auto l = static_cast<std::size_t>(shape.first_layer);
    const bool held = number >= 0;
    if (held || options.backward_masking) {
      bucket.parameters = place(shape.shape, shape.floats, 3, options.sharded() ? weights_end[l] : made.sizes.parameters);
    }
    if (held) {
      bucket.gradients = place(shape.shape, shape.floats, 2, options.sharded() ? gradients_end[l] : made.sizes.gradients);
    }
    if (held && options.sharded()) {
      bucket.shard_offset = made.sizes.parameters;
      made.sizes.parameters += (bucket.shard_end(number) - bucket.shard_begin(number) + 15) / 16 * 16;
    }
    if (shape.first_layer == shape.last_layer) {
      bucket.full = place(shape.shape == Shape::run ? Shape::mixed : Shape::run, shape.floats, 1, full_end[l]);
      made.layout.layers[l].push_back(bucket);
    }
    made.layout.buckets.push_back(bucket);
  }
  made.layout.layer_floats = gradients_end;
  made.layout.layer_offsets.assign(made_up_layers, 0);
  if (options.sharded() && options.reduce_per_microbatch) {
    made.sizes.gradients = made.sizes.parameters;
  } else if (options.sharded()) {
    for (std::size_t l = 0; l < made_up_layers; ++l) {
      made.layout.layer_offsets[l] = made.sizes.gradients;
      made.sizes.gradients += gradients_end[l];
    }
  }
  made.sizes.layer_weights = *std::max_element(weights_end.begin(), weights_end.end());
  made.sizes.layer_gradients = *std::max_element(gradients_end.begin(), gradients_end.end());
  made.sizes.full = *std::max_element(full_end.begin(), full_end.end());
  return made;
}

// Those of a real stage.
inline MadeUp from_layout(const ReplicaLayout& layout) {
  const auto most = [](const std::vector<std::int64_t>& floats) { return *std::max_element(floats.begin(), floats.end()); };
  return {layout,
          {layout.parameter_floats, layout.gradient_floats, most(layout.forward_layer_floats),
           most(layout.trained_layer_floats), most(layout.full_layer_floats)}};
}

// A stage of three small blocks in the middle of a model, or with both ends; half of the replicas hold a unit.
inline MadeUp real_layout(ReplicaOptions options, const Communicator& comm) {
  options.replicas = comm.size();
  options.replica = comm.rank();
  options.bucket_floats = 2500;
  options.neuron_groups = 4;
  const ModelConfig model{.family = "gpt2", .layers = 3, .width = 20, .heads = 4, .vocab = 29, .context = 24};
  const int per_block = options.unit == SdpUnit::block ? 1 : options.unit == SdpUnit::sublayer ? 2 : options.neuron_groups;
  if (options.sdp()) {
    options.masks.workers = options.replicas;
    for (int unit = 0; unit < 3 * per_block; ++unit) {
      std::vector<int>& holders = options.masks.holders.emplace_back();
      for (int copy = 0; copy < options.replicas / 2; ++copy) holders.push_back((unit + copy) % options.replicas);
      std::sort(holders.begin(), holders.end());
    }
  }
  return from_layout(ReplicaLayout(model, {true, 0, 3, true}, options));
}

// All that the replicas of a real stage can do: every way that shards or does not.
inline std::vector<ReplicaOptions> real_cases(bool sharded) {
  std::vector<ReplicaOptions> cases;
  const auto add = [&](const ReplicaOptions& options) {
    if (options.sharded() == sharded) cases.push_back(options);
  };
  for (const ReplicaMode mode : {ReplicaMode::ddp, ReplicaMode::zero1, ReplicaMode::fsdp}) {
    ReplicaOptions options;
    options.mode = mode;
    add(options);
  }
  for (const SdpUnit unit : {SdpUnit::block, SdpUnit::sublayer, SdpUnit::neuron}) {
    for (const bool backward : {false, true}) {
      for (const int kind : {0, 1, 2, 3}) {
        ReplicaOptions options;
        options.mode = ReplicaMode::sdp;
        options.unit = unit;
        options.backward_masking = backward;
        options.average_period = kind == 1 ? 2 : 0;
        options.sharded_units = kind >= 2;
        options.reduce_per_microbatch = kind != 3;
        add(options);
      }
    }
  }
  return cases;
}

inline std::string text_of(const ReplicaOptions& o) {
  return "mode " + std::to_string(static_cast<int>(o.mode)) + " unit " + std::to_string(static_cast<int>(o.unit)) +
         " backward " + std::to_string(o.backward_masking) + " sharded " + std::to_string(o.sharded_units) +
         " per microbatch " + std::to_string(o.reduce_per_microbatch) + " period " + std::to_string(o.average_period);
}

// When a replica sleeps and when it moves messages on: differs from rank to rank and from call to call.
class Rhythm {
 public:
  Rhythm(int seed, bool delays) : seed_(seed), delays_(delays) {}
  void beat(ReplicaExchange& exchange) {
    const float x = noise(77, static_cast<std::uint64_t>(seed_), ++count_, 0);
    if (delays_ && x < -0.6F) std::this_thread::sleep_for(std::chrono::microseconds(1000));
    for (int i = 0; x > 0.3F && i < 3; ++i) exchange.progress();
  }

 private:
  int seed_;
  bool delays_;
  std::uint64_t count_ = 0;
};

inline double test_scale(const std::vector<int>& holders, std::int64_t update) {
  double scale = 1.0 / (3.0 + static_cast<double>(update));
  for (const int h : holders) scale *= 1.0 - 0.1 * (h + 1);
  return scale;
}

// Scaled sum in ascending order of the holders' values.
template <class Value>
Values sum_of(const std::vector<int>& holders, std::int64_t floats, double scale, const Value& value) {
  Values sum(static_cast<std::size_t>(floats));
  for (std::int64_t i = 0; i < floats; ++i) {
    float s = value(holders.front(), i);
    for (std::size_t h = 1; h < holders.size(); ++h) s += value(holders[h], i);
    sum[static_cast<std::size_t>(i)] = s * static_cast<float>(scale);
  }
  return sum;
}

// One replica with its arrays, which are filled with numbers that no exchange makes.
struct ReplicaWorld {
  struct Memory {
    OwnedVector<float> parameters, gradients, full;
    std::array<OwnedVector<float>, 2> layer_weights, layer_gradients;
  };

  // How messages travel in the worlds made from now on.
  enum class Messages { mpi, streams };
  inline static Messages messages = Messages::mpi;

  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  MadeUp made;
  std::shared_ptr<Memory> memory = std::make_shared<Memory>();
  ExecutionSpace space;
  std::unique_ptr<ReplicaExchange> exchange;
  Rhythm rhythm;

  ReplicaWorld(ReplicaOptions options, bool subsets, bool delays = false)
      : made(make_layout(with_place(options, comm), subsets)), rhythm(comm.rank(), delays) {
    make();
  }
  ReplicaWorld(const MadeUp& given, bool delays) : made(given), rhythm(comm.rank(), delays) { make(); }

  static ReplicaOptions with_place(ReplicaOptions options, const Communicator& comm) {
    options.replicas = comm.size();
    options.replica = comm.rank();
    return options;
  }

  void make() {
    memory->parameters = array(made.sizes.parameters);
    memory->gradients = array(made.sizes.gradients);
    memory->full = array(made.sizes.full);
    ExchangeArrays arrays;
    arrays.parameters = memory->parameters;
    arrays.gradients = memory->gradients;
    for (std::size_t i = 0; i < 2; ++i) {
      arrays.layer_weights[i] = memory->layer_weights[i] = array(made.sizes.layer_weights);
      arrays.layer_gradients[i] = memory->layer_gradients[i] = array(made.sizes.layer_gradients);
    }
    arrays.owner = memory;
    ReplicaStreams streams;
    if (messages == Messages::streams) {
      streams.sums = std::make_unique<test::HostLink>(comm.get());
      streams.gathers = std::make_unique<test::HostLink>(comm.get());
      made.layout.memory = ExchangeMemory::kernels;
    }
    exchange = std::make_unique<ReplicaExchange>(made.layout, arrays, comm.get(), space, test_scale, 5, std::move(streams));
    exchange->join();
  }

  static OwnedVector<float> array(std::int64_t floats) {
    OwnedVector<float> result("minipipe::test::array", static_cast<std::size_t>(floats));
    Kokkos::deep_copy(result, -12345.0F);
    return result;
  }

  const ReplicaOptions& options() const { return made.layout.options; }
  const std::vector<Bucket>& buckets() const { return made.layout.buckets; }
  int layers() const { return static_cast<int>(made.layout.layers.size()); }
  int me() const { return comm.rank(); }
  std::int64_t own(const Bucket& bucket) const {
    const int number = bucket.number_of(me());
    return number < 0 ? 0 : bucket.shard_end(number) - bucket.shard_begin(number);
  }
  std::int64_t first(const Bucket& bucket) const { return bucket.shard_begin(bucket.number_of(me())); }

  static Values values(std::int64_t floats, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    Values result(static_cast<std::size_t>(floats));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = noise(a, b, c, i);
    return result;
  }
  // What replica r's backward of a microbatch gives; number: of the update and the microbatch.
  static float gradient(int r, std::size_t bucket, std::int64_t number, std::int64_t i) {
    return noise(1000 + static_cast<std::uint64_t>(r), bucket, static_cast<std::uint64_t>(number),
                 static_cast<std::uint64_t>(i));
  }
  Values my_gradient(std::size_t bucket, std::int64_t number) const {
    Values result(static_cast<std::size_t>(buckets()[bucket].floats));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = gradient(me(), bucket, number, static_cast<std::int64_t>(i));
    return result;
  }
  // Weights that holders agree on.
  Values weight(std::size_t bucket, std::int64_t version) const {
    return values(buckets()[bucket].floats, 1, bucket, static_cast<std::uint64_t>(version));
  }

  void wait_gradients(std::int64_t update) {
    ASSERT_TRUE(wait_until([&] { return exchange->gradients_ready(update); })) << "gradients of update " << update;
  }
  void wait_weights() {
    ASSERT_TRUE(wait_until([&] { return exchange->weights_ready(); })) << "weights";
  }
};

// Tests that hold however messages travel.
class WithEitherMessages : public ::testing::TestWithParam<ReplicaWorld::Messages> {
 protected:
  void SetUp() override { ReplicaWorld::messages = GetParam(); }
  void TearDown() override { ReplicaWorld::messages = ReplicaWorld::Messages::mpi; }
};

inline auto either_messages() { return ::testing::Values(ReplicaWorld::Messages::mpi, ReplicaWorld::Messages::streams); }
inline std::string name_of_messages(const ::testing::TestParamInfo<ReplicaWorld::Messages>& info) {
  return info.param == ReplicaWorld::Messages::mpi ? "mpi" : "streams";
}

}  // namespace minipipe::core
