// What runs the kernels' device forms on the host must show what a device would.
#ifdef MINIPIPE_DEVICE_FORMS

#include "core/device_forms/team.hpp"
#include "unit_tests/core/kernels/arrays.hpp"

namespace minipipe::core {
namespace {

using testing::Array;

constexpr int members = TeamPolicy::most_threads;

// Each member leaves its rank in scratch and then reads its neighbours': how many of the reads gave what was left there.
int neighbours_seen(bool barrier, int league) {
  const Array<float> seen(static_cast<std::size_t>(league * members));
  const auto to = seen.vector();
  TeamPolicy policy(ExecutionSpace(), league, 128);
  policy.set_scratch_size(0, Kokkos::PerTeam(members * 8));
  Kokkos::parallel_for("test", policy, [=](const TeamMember& team) {
    auto* ranks = static_cast<double*>(team.team_scratch(0).get_shmem(members * 8));
    const int mine = team.team_rank();
    ranks[mine] = mine;
    if (barrier) team.team_barrier();
    const int before = (mine + members - 1) % members, after = (mine + 1) % members;
    to(team.league_rank() * members + mine) = static_cast<float>((ranks[before] == before) + (ranks[after] == after));
  });
  int sum = 0;
  for (const double value : seen.get()) sum += static_cast<int>(value);
  return sum;
}

TEST(DeviceTeams, MembersMeetAtBarriers) { EXPECT_EQ(neighbours_seen(true, 3), 3 * 2 * members); }

// The first member knows nothing of the others, and no member of the one after it; the last knows both.
TEST(DeviceTeams, AMissingBarrierShowsInBothOrders) { EXPECT_EQ(neighbours_seen(false, 2), 2 * members); }

TEST(DeviceTeams, LoopsAndSumsCoverTheirRangeOnce) {
  for (const int count : {0, 1, 3, 24, 101}) {
    const Array<float> visits(testing::Numbers(static_cast<std::size_t>(count + 1), 0.0));
    const Array<double> sums(static_cast<std::size_t>(2 * members));
    const auto to = visits.vector();
    const auto totals = sums.vector();
    Kokkos::parallel_for("test", TeamPolicy(ExecutionSpace(), 1, 128, 32), [=](const TeamMember& team) {
      double all = 0, lanes = 0;
      Kokkos::parallel_for(Kokkos::TeamVectorRange(team, count), [&](const int i) { to(i) += 1; });
      Kokkos::parallel_reduce(
          Kokkos::TeamVectorRange(team, count), [&](const int i, double& sum) { sum += i; }, all);
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, count), [&](const int i, double& sum) { sum += i; }, lanes);
      Kokkos::single(Kokkos::PerThread(team), [&] {
        totals(2 * team.team_rank()) = all;
        totals(2 * team.team_rank() + 1) = lanes;
      });
    });
    testing::Numbers once(static_cast<std::size_t>(count), 1.0);
    once.push_back(0);
    EXPECT_EQ(visits.get(), once);
    EXPECT_EQ(sums.get(), testing::Numbers(static_cast<std::size_t>(2 * members), count * (count - 1) / 2.0));
  }
}

TEST(DeviceTeamsDeathTest, ABarrierForSomeMembersOnly) {
  const auto run = [] {
    Kokkos::parallel_for("test", TeamPolicy(ExecutionSpace(), 1, 128), [=](const TeamMember& team) {
      if (team.team_rank() > 0) team.team_barrier();
    });
  };
  EXPECT_DEATH(run(), "not all members");
}

TEST(DeviceTeamsDeathTest, MoreScratchThanABlockShares) {
  TeamPolicy policy(ExecutionSpace(), 1, 128);
  EXPECT_DEATH(policy.set_scratch_size(0, Kokkos::PerTeam(48 << 10)), "more scratch");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(DeviceTeamsDeathTest, TheHostInTheKernelsMemory) {
  const Array<float> array(testing::Numbers{1, 2, 3});
  EXPECT_EQ(array.get(), (testing::Numbers{1, 2, 3}));
  EXPECT_DEATH(array.vector()(1) += 1, "use-after-poison");
}
#endif

}  // namespace
}  // namespace minipipe::core

#endif
