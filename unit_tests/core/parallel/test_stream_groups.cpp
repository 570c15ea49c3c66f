// What replicas enqueue on their streams: all of them in this process, each for itself, and then put together.
#include <deque>
#include <optional>

#include "unit_tests/mpi/replica_world.hpp"

namespace minipipe::core {
namespace {

using Group = std::vector<StreamMessage>;
using Groups = std::vector<Group>;

class Recorder : public StreamLink {
 public:
  void join() override {}
  const ExecutionSpace& space() const override { return space_; }
  void follow(const ExecutionSpace& /*other*/) override {}
  void exchange(const std::vector<StreamMessage>& group) override { groups.push_back(group); }
  void mark(int /*slot*/) override {}
  bool reached(int /*slot*/) override { return true; }

  Groups groups;

 private:
  ExecutionSpace space_;
};

void record(Transfer& transfer, Recorder& stream, const StagingSlot& slot) {
  Traffic traffic;
  for (int step = 0; !transfer.enqueue(step, stream, traffic, slot); ++step) {
    ASSERT_LT(step, 3);
  }
}

struct Streams {
  Groups sums;
  Groups gathers;
};

// All transfers of one replica in the order in which an exchange may begin them.
Streams streams_of(ReplicaOptions options, int replicas, int replica, bool subsets) {
  options.replicas = replicas;
  options.replica = replica;
  MadeUp made = make_layout(options, subsets);
  made.layout.memory = ExchangeMemory::kernels;
  const ExchangePlans plans(made.layout);
  const ArraySizes& sizes = made.sizes;
  const std::int64_t most =
      std::max({sizes.parameters, sizes.gradients, sizes.layer_weights, sizes.layer_gradients, sizes.full});
  const auto source = ReplicaWorld::array(most), target = ReplicaWorld::array(most);
  const Staging staging(1, std::max(plans.reduce_slot_floats, plans.gather_slot_floats), ExchangeMemory::kernels);
  Recorder sums, gathers;
  const auto reduce = [&](const ReducePlan& plan) {
    if (plan.holders.empty()) return;
    BucketReduce transfer(plan, {}, source, target);
    record(transfer, sums, staging.slot(0));
  };
  const auto gather = [&](const GatherPlan& plan) {
    BucketGather transfer(plan, 0, TrafficPurpose::refresh, source, target);
    if (!transfer.empty()) record(transfer, gathers, staging.slot(0));
  };
  for (const auto& parts : plans.gradients) {
    for (const ReducePlan& plan : parts) reduce(plan);
  }
  for (const ReducePlan& plan : plans.averages) reduce(plan);
  for (const GatherPlan& plan : plans.weights) gather(plan);
  for (const auto* layers : {&plans.layers, &plans.evaluation}) {
    for (const auto& layer : *layers) {
      for (const GatherPlan& plan : layer) gather(plan);
    }
  }
  return {sums.groups, gathers.groups};
}

// Lets the streams go on as NCCL does: all messages of a group are on their way at once, the group is over when each has met
// its counterpart, and nothing is kept for a receive that comes later. Nothing: all come to their end; else what is wrong.
std::optional<std::string> problem_of(const std::vector<Groups>& by_replica) {
  using enum StreamMessage::Direction;
  std::vector<std::deque<Group>> left;
  for (const Groups& groups : by_replica) left.emplace_back(groups.begin(), groups.end());
  for (bool moved = true; moved;) {
    moved = false;
    for (int me = 0; me < static_cast<int>(left.size()); ++me) {
      auto& mine = left[static_cast<std::size_t>(me)];
      if (mine.empty()) continue;
      std::erase_if(mine.front(), [&](const StreamMessage& message) {
        auto& theirs = left[static_cast<std::size_t>(message.peer)];
        if (message.direction != send || theirs.empty()) return false;
        const auto met = std::find_if(theirs.front().begin(), theirs.front().end(), [&](const StreamMessage& other) {
          return other.direction == receive && other.peer == me && other.floats == message.floats;
        });
        if (met == theirs.front().end()) return false;
        theirs.front().erase(met);
        moved = true;
        return true;
      });
    }
    for (auto& groups : left) {
      while (!groups.empty() && groups.front().empty()) {
        groups.pop_front();
        moved = true;
      }
    }
  }
  for (std::size_t r = 0; r < left.size(); ++r) {
    if (!left[r].empty())
      return "replica " + std::to_string(r) + " waits with " + std::to_string(left[r].size()) + " groups left";
  }
  return {};
}

std::vector<ReplicaOptions> all_cases() {
  std::vector<ReplicaOptions> cases;
  for (const ReplicaMode mode : {ReplicaMode::ddp, ReplicaMode::zero1, ReplicaMode::fsdp}) cases.emplace_back().mode = mode;
  for (const bool backward : {false, true}) {
    for (const int kind : {0, 1, 2, 3}) {
      ReplicaOptions& options = cases.emplace_back();
      options.mode = ReplicaMode::sdp;
      options.backward_masking = backward;
      options.average_period = kind == 1 ? 2 : 0;
      options.sharded_units = kind >= 2;
      options.reduce_per_microbatch = kind != 3;
    }
  }
  return cases;
}

TEST(StreamGroups, every_message_meets_its_counterpart_and_nobody_waits_for_ever) {
  for (const int replicas : {2, 3, 5, 8}) {
    for (const ReplicaOptions& options : all_cases()) {
      SCOPED_TRACE(std::to_string(replicas) + " replicas, " + text_of(options));
      std::vector<Groups> sums, gathers;
      for (int r = 0; r < replicas; ++r) {
        Streams streams = streams_of(options, replicas, r, options.sdp());
        sums.push_back(std::move(streams.sums));
        gathers.push_back(std::move(streams.gathers));
      }
      EXPECT_FALSE(sums.front().empty());
      EXPECT_EQ(problem_of(sums).value_or(""), "") << "sums";
      EXPECT_EQ(problem_of(gathers).value_or(""), "") << "gathers";
      for (const auto* streams : {&sums, &gathers}) {
        for (const Groups& groups : *streams) {
          for (const Group& group : groups) {
            EXPECT_FALSE(group.empty());
            for (const StreamMessage& message : group) EXPECT_GE(message.floats, 1);
          }
        }
      }
    }
  }
}

// In a group the library may pair two messages with one peer in either way.
TEST(StreamGroups, a_group_has_one_message_to_and_one_from_a_peer_at_most) {
  for (const ReplicaOptions& options : all_cases()) {
    const Streams streams = streams_of(options, 5, 2, options.sdp());
    for (const auto* groups : {&streams.sums, &streams.gathers}) {
      for (const Group& group : *groups) {
        for (auto a = group.begin(); a != group.end(); ++a) {
          EXPECT_TRUE(std::none_of(a + 1, group.end(), [&](const StreamMessage& b) {
            return a->peer == b.peer && a->direction == b.direction;
          })) << text_of(options);
          EXPECT_NE(a->peer, 2);
        }
      }
    }
  }
}

// Why the order is the same on all replicas, and why messages go in groups.
TEST(StreamGroups, other_orders_and_single_messages_stop) {
  std::vector<Groups> sums, single;
  for (int r = 0; r < 3; ++r) sums.push_back(streams_of({}, 3, r, false).sums);
  for (const Groups& groups : sums) {
    Groups& messages = single.emplace_back();
    for (const Group& group : groups) {
      for (const StreamMessage& message : group) messages.push_back({message});
    }
  }
  EXPECT_EQ(problem_of(sums), std::nullopt);
  EXPECT_NE(problem_of(single), std::nullopt);
  std::reverse(sums[1].begin(), sums[1].end());
  EXPECT_NE(problem_of(sums), std::nullopt);
}

}  // namespace
}  // namespace minipipe::core
