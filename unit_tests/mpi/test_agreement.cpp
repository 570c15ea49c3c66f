#include <gtest/gtest.h>
#include <mpi.h>

#include <string>
#include <vector>

#include "core/comm/agreement.hpp"
#include "core/comm/mpi_error.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

class Agreement : public ::testing::Test {
 protected:
  Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
};

TEST_F(Agreement, holds_only_if_every_rank_says_so) {
  EXPECT_TRUE(all_agree(comm.get(), true));
  EXPECT_FALSE(all_agree(comm.get(), false));
  for (int r = 0; r < comm.size(); ++r) {
    EXPECT_FALSE(all_agree(comm.get(), comm.rank() != r)) << "rank " << r;
  }
}

TEST_F(Agreement, no_failure_no_exception) { EXPECT_NO_THROW(agree_or_throw(comm.get(), nullptr)); }

// What this rank throws when `failing` ranks fail, the class in front of the text.
std::string outcome(MPI_Comm comm, bool fail, bool input_error) {
  try {
    agree(comm, [&] {
      if (fail && input_error) {
        throw InputError("no such key");
      }
      if (fail) {
        throw RunError("disk full");
      }
    });
  } catch (const InputError& error) {
    return std::string("input ") + error.what();
  } catch (const RunError& error) {
    return std::string("run ") + error.what();
  }
  return "nothing";
}

TEST_F(Agreement, everyone_throws_what_the_one_that_failed_threw) {
  for (int r = 0; r < comm.size(); ++r) {
    const std::string prefix = r == 0 ? "" : "rank " + std::to_string(r) + ": ";
    EXPECT_EQ(outcome(comm.get(), comm.rank() == r, true), "input " + prefix + "no such key");
    EXPECT_EQ(outcome(comm.get(), comm.rank() == r, false), "run " + prefix + "disk full");
  }
}

TEST_F(Agreement, the_lowest_failing_rank_decides_the_class) {
  const bool odd = comm.rank() % 2 == 1;
  EXPECT_EQ(outcome(comm.get(), true, odd), "run disk full");
  EXPECT_EQ(outcome(comm.get(), true, !odd), "input no such key");
}

TEST_F(Agreement, other_exceptions_become_run_errors) {
  std::exception_ptr mine = comm.rank() == comm.size() - 1 ? std::make_exception_ptr(42) : nullptr;
  EXPECT_THROW(agree_or_throw(comm.get(), mine), RunError);
}

TEST_F(Agreement, text_of_any_rank_and_any_length_reaches_all) {
  for (int root = 0; root < comm.size(); ++root) {
    for (const std::size_t length : {0u, 1u, 100'000u}) {
      const std::string expected(length, static_cast<char>('a' + root));
      std::string text = comm.rank() == root ? expected : "something longer than nothing";
      broadcast_text(comm.get(), text, root);
      EXPECT_EQ(text, expected);
    }
  }
}

TEST_F(Agreement, tells_whether_a_value_is_the_same) {
  EXPECT_TRUE(same_on_all(comm.get(), 0));
  EXPECT_TRUE(same_on_all(comm.get(), ~std::uint64_t{0}));
  for (int r = 0; r < comm.size(); ++r) {
    EXPECT_FALSE(same_on_all(comm.get(), comm.rank() == r ? 7 : 8)) << "rank " << r;
    EXPECT_FALSE(same_on_all(comm.get(), comm.rank() == r ? ~std::uint64_t{0} : 0)) << "rank " << r;
  }
}

TEST(MpiError, a_failing_call_throws_with_its_name) {
  const Communicator comm = Communicator::duplicate(MPI_COMM_WORLD);
  int value = 0;
  try {
    check(MPI_Send(&value, 1, MPI_INT, comm.size(), 0, comm.get()), "the send of a test");
    ADD_FAILURE() << "sending to a rank that does not exist went through";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("the send of a test"), std::string::npos);
  }
}

TEST(Communicator, splits_and_moves) {
  int world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &world);
  Communicator half = Communicator::split(MPI_COMM_WORLD, world % 2, -world);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(half.size(), (size + 1 - world % 2) / 2);
  EXPECT_EQ(half.rank(), (size - 1 - world) / 2);  // keys turn the order round
  const MPI_Comm raw = half.get();
  Communicator taken = std::move(half);
  EXPECT_EQ(taken.get(), raw);
  EXPECT_EQ(half.get(), MPI_COMM_NULL);
  half = std::move(taken);
  EXPECT_EQ(half.get(), raw);
}

}  // namespace
}  // namespace minipipe::core
