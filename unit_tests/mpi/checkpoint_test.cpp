// Checkpoints written by several ranks.
#include "core/io/checkpoint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/io/durable.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {
namespace {

using ::testing::HasSubstr;

// One folder for all ranks, made and removed by rank 0.
class ParallelCheckpoint : public ::testing::Test {
 protected:
  ParallelCheckpoint() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    int id = rank_ == 0 ? static_cast<int>(::getpid()) : 0;
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    folder_ = std::filesystem::temp_directory_path() / ("minipipe_mpi_checkpoint_" + std::to_string(id));
    if (rank_ == 0) std::filesystem::create_directories(folder_);
    MPI_Barrier(MPI_COMM_WORLD);
    // Uneven: rank r owns r + 1 tensors.
    for (int i = 0; i <= rank_; ++i) values_.emplace_back(100 + i, static_cast<float>(10 * rank_ + i));
    for (int i = 0; i <= rank_; ++i) {
      const auto& v = values_[static_cast<std::size_t>(i)];
      tensors_.push_back({name(rank_, i), {v.size()}, v.data(), v.data(), v.data()});
    }
    state_.step = 7 + rank_;  // rank 0's counts
    state_.deck = rank_ == 0 ? "deck of rank 0" : "";
  }
  ~ParallelCheckpoint() override {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 0) std::filesystem::remove_all(folder_);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  static std::string name(int rank, int i) { return "layer." + std::to_string(rank) + "." + std::to_string(i); }

  int rank_ = 0;
  int size_ = 1;
  std::filesystem::path folder_;
  std::vector<std::vector<float>> values_;
  std::vector<TensorRef> tensors_;
  CheckpointState state_;
};

TEST_F(ParallelCheckpoint, EveryRankReadsWhatOthersWrote) {
  const auto path = checkpoint_path(folder_, 7);
  write_checkpoint(MPI_COMM_WORLD, path, tensors_, state_);
  EXPECT_EQ(read_checkpoint_state(path).step, 7);
  EXPECT_EQ(read_checkpoint_state(path).deck, "deck of rank 0");
  for (int owner = 0; owner < size_; ++owner) {
    for (int i = 0; i <= owner; ++i) {
      std::vector<float> value(static_cast<std::size_t>(100 + i)), m(value.size()), v(value.size());
      read_tensors(path, {{name(owner, i), {value.size()}, value.data(), m.data(), v.data()}});
      const std::vector<float> want(value.size(), static_cast<float>(10 * owner + i));
      EXPECT_EQ(value, want);
      EXPECT_EQ(m, want);
      EXPECT_EQ(v, want);
    }
  }
}

TEST_F(ParallelCheckpoint, AFailureOnOneRankIsTheSameErrorOnAll) {
  const auto path = checkpoint_path(folder_, 8);
  if (rank_ == size_ - 1) tensors_.push_back({"bad/name", {1}, values_[0].data()});
  try {
    write_checkpoint(MPI_COMM_WORLD, path, tensors_, state_);
    ADD_FAILURE() << "no error";
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bad/name"));
    EXPECT_THAT(error.what(), HasSubstr("rank " + std::to_string(size_ - 1)));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(temporary_name(path)));
}

TEST_F(ParallelCheckpoint, ATensorOwnedTwiceIsAnError) {
  tensors_.push_back({"shared", {1}, values_[0].data()});
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  EXPECT_THROW(write_checkpoint(MPI_COMM_WORLD, checkpoint_path(folder_, 9), tensors_, state_), RunError);
}

}  // namespace
}  // namespace minipipe::core
