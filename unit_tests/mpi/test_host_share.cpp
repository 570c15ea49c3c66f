#include <gtest/gtest.h>
#include <mpi.h>
#include <sched.h>

#include "core/comm/host_share.hpp"
#include "core/comm/mpi_error.hpp"

namespace minipipe::core {
namespace {

// The tests run on one host.
TEST(HostShare, CountsRanksAndTheCoresOfAnyOfThem) {
  const Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  int second = first + 1;
  while (second < CPU_SETSIZE && !CPU_ISSET(second, &before)) ++second;

  // Rank 0 on one core, the others on another, where there is one.
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(comm.rank() == 0 || second == CPU_SETSIZE ? first : second, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const HostShare share = host_share(comm.get());
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(share.ranks, comm.size());
  EXPECT_EQ(share.cores, comm.size() > 1 && second < CPU_SETSIZE ? 2 : 1);
  EXPECT_EQ(host_share(comm.get()).ranks, comm.size());
}

}  // namespace
}  // namespace minipipe::core
