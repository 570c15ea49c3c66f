#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/comm/mpi_error.hpp"
#include "core/train/gather.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

struct Record {
  std::int64_t number;
  int rank;
  friend bool operator==(const Record&, const Record&) = default;
};

// Rank r has r records: rank 0 none.
std::vector<Record> records_of(int rank) {
  std::vector<Record> records;
  for (int i = 0; i < rank; ++i) records.push_back({100 * rank + i, rank});
  return records;
}

TEST(Gather, brings_all_to_rank_0_by_rank) {
  const Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  const auto all = gather(comm.get(), records_of(comm.rank()));
  ASSERT_EQ(all.size(), comm.rank() == 0 ? static_cast<std::size_t>(comm.size()) : 0U);
  for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r], records_of(static_cast<int>(r)));
}

TEST(Gather, everywhere_in_the_order_of_ranks_and_again_into_the_same_memory) {
  const Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  std::vector<Record> expected;
  for (int r = 0; r < comm.size(); ++r) {
    for (const Record& record : records_of(r)) expected.push_back(record);
  }
  std::vector<Record> mine = records_of(comm.rank());
  GatherEverywhere<Record> gather_all(comm.get(), mine.size());
  const Record* const first = gather_all(mine).data();
  EXPECT_EQ(gather_all(mine), expected);
  for (Record& record : mine) record.number += 7;
  for (Record& record : expected) record.number += 7;
  EXPECT_EQ(gather_all(mine), expected);
  EXPECT_EQ(gather_all(mine).data(), first);
}

TEST(Gather, more_elements_than_mpi_counts_are_an_error_on_all_ranks) {
  const Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  constexpr std::size_t most = std::numeric_limits<int>::max();
  EXPECT_EQ(GatherCounts(comm.get(), comm.rank() == 0 ? most : 0).all, most);
  EXPECT_THROW(GatherCounts(comm.get(), comm.rank() == 0 ? most + 1 : 0), RunError);
}

}  // namespace
}  // namespace minipipe::core
