#include <gtest/gtest.h>

#include <algorithm>

#include "core/comm/mpi_channel.hpp"
#include "core/comm/nccl_transport.hpp"
#include "core/comm/transport.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

// The edges of each rank, as a pipeline makes its ends: stage by stage, both directions. stage_ranks: by stage.
std::vector<std::vector<EdgeEnd>> edges_by_rank(const std::vector<int>& stage_ranks) {
  std::vector<std::vector<EdgeEnd>> ranks(1 + *std::max_element(stage_ranks.begin(), stage_ranks.end()));
  for (int stage = 0; stage + 1 < static_cast<int>(stage_ranks.size()); ++stage) {
    const int lower = stage_ranks[stage], upper = stage_ranks[stage + 1];
    if (lower == upper) continue;
    for (const Direction direction : {Direction::gradient, Direction::activation}) {
      ranks[lower].push_back({upper, edge_tag(stage, direction)});
      ranks[upper].push_back({lower, edge_tag(stage, direction)});
    }
  }
  return ranks;
}

// Lets each rank join its ends one after another, each join waiting for the peer's. True if all come to their end.
bool all_join(std::vector<std::vector<EdgeEnd>> ranks) {
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      if (ranks[rank].empty()) continue;
      const EdgeEnd end = ranks[rank].front();
      auto& peer = ranks[end.peer];
      if (peer.empty() || peer.front() != EdgeEnd{rank, end.tag}) continue;
      peer.erase(peer.begin());
      ranks[rank].erase(ranks[rank].begin());
      moved = true;
    }
  }
  return std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.empty(); });
}

TEST(Transport, ranks_that_connect_in_joining_order_never_wait_for_each_other_in_a_circle) {
  // A line, a circle of interleaved stages, a V, and a placement without any order.
  for (const std::vector<int>& placement :
       {std::vector<int>{0, 1, 2, 3}, {0, 1, 2, 0, 1, 2, 0, 1, 2}, {0, 1, 2, 2, 1, 0}, {2, 0, 3, 1, 0, 2, 1, 3, 3, 0}}) {
    auto ranks = edges_by_rank(placement);
    for (auto& ends : ranks) {
      std::reverse(ends.begin(), ends.end());
      ends = joining_order(ends);
    }
    EXPECT_TRUE(all_join(ranks)) << placement.size() << " stages";
  }
}

TEST(Transport, ranks_that_connect_stage_by_stage_can_wait_in_a_circle) {
  // Why there is an order: ranks 0 and 1 have an edge in each direction of a ring and begin with different ones.
  auto ranks = edges_by_rank({0, 1, 0});
  std::reverse(ranks[1].begin(), ranks[1].end());
  EXPECT_FALSE(all_join(ranks));
}

TEST(Transport, what_was_not_built_in_is_refused_with_the_remedy) {
  EXPECT_NO_THROW(require_transport("mpi"));
  if (have_nccl) return;
  try {
    require_transport("nccl");
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("parallel.transport = \"nccl\""), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("use \"mpi\""), std::string::npos);
  }
}

}  // namespace
}  // namespace minipipe::core
