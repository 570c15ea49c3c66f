// Whole pipelines with replicas whose ranks fall behind at random: they end, with the results of undelayed ones. A watchdog
// ends the job where they wait for each other for ever.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/comm/watchdog.hpp"
#include "core/deck/rules.hpp"
#include "core/train/options.hpp"
#include "core/train/pipeline.hpp"
#include "core/train/replica_options.hpp"
#include "schedules/policy/rank_list.hpp"
#include "unit_tests/core/model/replica_group.hpp"
#include "unit_tests/core/train/decks.hpp"
#include "unit_tests/mpi/host_link.hpp"

namespace minipipe::core {
namespace {

// Sleeps up to 2 ms before some calls. Which ranks are slow changes from update to update.
class DelayedExchange : public LayerExchange {
 public:
  DelayedExchange(LayerExchange& inner, int rank) : inner_(inner), random_(static_cast<unsigned>(1000 + rank)) {}

  void fetch(int layer, int next) override {
    pause();
    inner_.fetch(layer, next);
  }
  void assemble(int layer, const Vector<float>& target) override { inner_.assemble(layer, target); }
  void gradient_begins(int layer) override {
    pause();
    inner_.gradient_begins(layer);
  }
  void gradient_done(int layer, bool last) override {
    pause();
    inner_.gradient_done(layer, last);
  }
  bool gradients_ready(std::int64_t update) override { return inner_.gradients_ready(update); }
  void weights_changed(std::int64_t update) override {
    slow_ = random_() % 3 == 0;
    pause();
    inner_.weights_changed(update);
  }
  bool weights_ready() override { return inner_.weights_ready(); }
  std::vector<double> sum_over_replicas(const std::vector<double>& mine) override {
    pause();
    return inner_.sum_over_replicas(mine);
  }
  void progress() override { inner_.progress(); }
  std::size_t bytes() const override { return inner_.bytes(); }

 private:
  void pause() {
    if (slow_ && random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 2000));
  }

  LayerExchange& inner_;
  std::mt19937 random_;
  bool slow_ = true;
};

struct Trained {
  std::vector<MicrobatchLoss> losses;              // of this rank's last stage
  std::vector<std::vector<std::uint64_t>> hashes;  // by stage and bucket of the parameters held here; 0: not held
  std::vector<std::pair<std::int64_t, int>> gaps;  // of each backward: versions since its forward, and the stage
};

std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const float value : values) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 1099511628211ULL;
  }
  return hash | 1;
}

ReplicaStreams host_streams(MPI_Comm replicas) {
  return {std::make_unique<test::HostLink>(replicas), std::make_unique<test::HostLink>(replicas)};
}

Trained train(const Deck& deck, bool delays, const Pipeline::MakeStreams& streams = {}) {
  const Communicator edges = Communicator::duplicate(MPI_COMM_WORLD);
  const Place place = place_of_run(deck, edges.rank(), edges.size());
  const Communicator replicas = Communicator::split(MPI_COMM_WORLD, place.pipeline_rank(), place.replica());
  test::HashedTokens source(train_shape(deck), deck.model.vocab);
  Pipeline pipeline(deck, place, edges.get(), {&source, &source}, [] { return MPI_Wtime(); });
  pipeline.join_replicas(replicas.get(), streams);
  std::vector<std::unique_ptr<DelayedExchange>> delayed;
  for (LocalStage& stage : pipeline.stages()) {
    if (!delays || !stage.exchange) continue;
    delayed.push_back(std::make_unique<DelayedExchange>(*stage.exchange, place.rank));
    stage.model->attach(*delayed.back());
  }
  std::map<int, std::unique_ptr<schedules::Policy>> policies;
  const auto options = schedule_options(deck, place.stages());
  for (int rank = 0; rank < place.placement.ranks; ++rank) {
    if (place.one_process() || rank == place.pipeline_rank()) {
      policies.merge(schedules::make_rank_policies(options, place.placement, rank));
    }
  }
  Watchdog watchdog(30, [&] { return "rank " + std::to_string(place.rank) + ": replicas wait for each other for ever\n"; });
  pipeline.run_segment(std::move(policies), deck.run.steps * deck.train.microbatches,
                       [&](bool moved) -> std::optional<std::int64_t> {
                         if (moved) watchdog.beat();
                         return std::nullopt;
                       });
  MPI_Barrier(MPI_COMM_WORLD);

  Trained result;
  for (LocalStage& stage : pipeline.stages()) {
    for (const MicrobatchLoss& loss : stage.model->take_losses()) result.losses.push_back(loss);
    std::vector<std::uint64_t>& hashes = result.hashes.emplace_back();
    for (const Bucket& bucket : stage.model->replica_layout().buckets) {
      const bool held = bucket.number_of(place.replica()) >= 0 && !stage.model->replica_layout().options.sharded();
      hashes.push_back(held ? hash_of(test::read_pieces(stage.model->parameters().parameters(), bucket.parameters)) : 0);
    }
    std::map<std::int64_t, std::int64_t> forwards;
    for (const auto& entry : stage.executor->take_log()) {
      if (entry.action.kind == schedules::Kind::forward) forwards[entry.action.microbatch] = entry.version;
      if (entry.action.kind == schedules::Kind::backward) {
        result.gaps.emplace_back(entry.version - forwards.at(entry.action.microbatch), stage.index);
      }
    }
  }
  // Those who hold a bucket have the same bits in it.
  for (const std::vector<std::uint64_t>& mine : result.hashes) {
    std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(place.replicas));
    MPI_Allgather(mine.data(), static_cast<int>(mine.size()), MPI_UINT64_T, all.data(), static_cast<int>(mine.size()),
                  MPI_UINT64_T, replicas.get());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::uint64_t own = mine[i % mine.size()];
      if (own != 0 && all[i] != 0) {
        EXPECT_EQ(all[i], own) << "bucket " << i % mine.size();
      }
    }
  }
  return result;
}

struct DelayCase {
  std::string name;
  std::vector<std::string> overrides;
  bool alike = true;  // the order of actions does not depend on timing
  int layers = 4;
};

class ReplicasDelayed : public ::testing::Test {
 protected:
  void run(const DelayCase& test) {
    SCOPED_TRACE(test.name);
    std::vector<std::string> overrides = {"model.layers=" + std::to_string(test.layers), "train.microbatches=2",
                                          "run.steps=" + std::to_string(updates), "parallel.bucket_mb=0.01",
                                          "train.weight_decay=0.1"};
    overrides.insert(overrides.end(), test.overrides.begin(), test.overrides.end());
    const Deck deck = tests::small_deck(overrides);
    check_masks_of_run(deck, stages_of(deck, size()));
    const Trained calm = train(deck, false);
    compare(deck, test, calm, train(deck, true));
    SCOPED_TRACE("on streams");
    compare(deck, test, calm, train(deck, true, host_streams));
  }

  static void compare(const Deck& deck, const DelayCase& test, const Trained& calm, const Trained& delayed) {
    const auto options = schedule_options(deck, stages_of(deck, size()));
    for (const auto& [gap, stage] : delayed.gaps) EXPECT_LE(gap, schedules::version_gap_bound(options, stage));
    EXPECT_EQ(delayed.gaps.size(), static_cast<std::size_t>(updates * deck.train.microbatches) * delayed.hashes.size());
    if (!test.alike) return;
    ASSERT_EQ(delayed.losses.size(), calm.losses.size());
    for (std::size_t i = 0; i < calm.losses.size(); ++i) EXPECT_EQ(delayed.losses[i].loss, calm.losses[i].loss) << i;
    EXPECT_EQ(delayed.hashes, calm.hashes);
  }

  static int size() {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return ranks;
  }
  // All ranks are replicas.
  static std::string all() { return "parallel.data=" + std::to_string(size()); }
  static constexpr std::int64_t updates = 16;
};

TEST_F(ReplicasDelayed, overlapping_groups_of_holders) {
  const std::string coverage = size() > 2 ? "sdp.coverage=0.5" : "sdp.coverage=0.75";
  const std::vector<std::string> sdp = {all(), "schedule.name=1f1b", "parallel.mode=sdp", coverage};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sdp.begin(), sdp.end());
    return more;
  };
  run({"blocks", with({})});
  run({"sublayers, backward", with({"sdp.unit=sublayer", "sdp.masking=backward", "sdp.refresh=2"})});
  run({"neurons, random", with({"sdp.unit=neuron", "sdp.generator=random", "train.clip=stage"})});
  run({"sharded", with({"sdp.fsdp=true"})});
  run({"sharded, per window", with({"sdp.fsdp=true", "parallel.fsdp_reduce=window"})});
}

// Between averages holders differ; the last update averages.
TEST_F(ReplicasDelayed, averages_of_parameters) {
  run({"averages",
       {all(), "schedule.name=1f1b", "parallel.mode=sdp", size() > 2 ? "sdp.coverage=0.5" : "sdp.coverage=0.75",
        "sdp.sync=parameter", "sdp.period=2"}});
}

TEST_F(ReplicasDelayed, plain_data_parallelism) {
  for (const char* mode : {"ddp", "zero1", "fsdp"}) {
    run({mode, {all(), "schedule.name=1f1b", std::string("parallel.mode=") + mode}});
  }
}

TEST_F(ReplicasDelayed, two_replicas_of_two_stages) {
  if (size() < 4) GTEST_SKIP() << "needs four ranks";
  for (const char* mode : {"ddp", "zero1"}) {
    const std::string parallel = std::string("parallel.mode=") + mode;
    run({std::string("paci, dynamic, ") + mode,
         {"parallel.data=2", "schedule.name=paci", "schedule.order=dynamic", parallel},
         false});
  }
  run({"paci, fixed, fsdp", {"parallel.data=2", "schedule.name=paci", "schedule.order=fixed", "parallel.mode=fsdp"}});
  run({"paci, dynamic, backward masking",
       {"parallel.data=2", "schedule.name=paci", "schedule.order=dynamic", "parallel.mode=sdp", "sdp.coverage=0.75",
        "sdp.masking=backward"},
       false,
       8});
  run({"1f1b, sdp", {"parallel.data=2", "schedule.name=1f1b", "parallel.mode=sdp", "sdp.coverage=0.75"}, true, 8});
}

}  // namespace
}  // namespace minipipe::core
