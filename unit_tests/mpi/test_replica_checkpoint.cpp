// Checkpoints that replicas write and read in every mode, on every grid, with any masks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/train/checkpointing.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/model/replicas.hpp"

namespace minipipe::core {
namespace {

const ModelConfig model{"gpt2", 4, 20, 4, 29, 24, false, 0.0};

// Replicas x stages and how replicas share a stage.
struct Grid {
  std::string name;
  int replicas = 1;
  int stages = 1;
  ReplicaOptions options;  // replicas, replica and masks to be filled in
  double coverage = 1;

  int ranks() const { return replicas * stages; }
};

// On `ranks` ranks. Shards of small buckets begin and end within rows.
std::vector<Grid> grids(int ranks) {
  std::vector<Grid> result;
  for (int stages = 1; stages <= std::min(2, ranks); ++stages) {
    if (ranks % stages != 0) continue;
    const auto add = [&](const std::string& name, ReplicaOptions options, double coverage = 1) {
      options.bucket_floats = 500;
      options.replicas = ranks / stages;
      result.push_back({name + " x " + std::to_string(stages), options.replicas, stages, options, coverage});
    };
    add("ddp", {.mode = ReplicaMode::ddp});
    if (ranks == stages) continue;
    add("zero1", {.mode = ReplicaMode::zero1});
    add("fsdp", {.mode = ReplicaMode::fsdp});
    for (const bool backward : {false, true}) {
      const std::string way = backward ? ", backward" : ", forward";
      add("blocks" + way, {.mode = ReplicaMode::sdp, .unit = SdpUnit::block, .backward_masking = backward}, 0.5);
      add("sharded sublayers" + way,
          {.mode = ReplicaMode::sdp, .unit = SdpUnit::sublayer, .backward_masking = backward, .sharded_units = true}, 0.75);
      add("neurons" + way, {.mode = ReplicaMode::sdp, .unit = SdpUnit::neuron, .backward_masking = backward}, 0.5);
      add("sharded neurons" + way,
          {.mode = ReplicaMode::sdp, .unit = SdpUnit::neuron, .backward_masking = backward, .sharded_units = true}, 0.5);
    }
  }
  return result;
}

// The store of a rank of a grid: ranks of a replica are neighbours.
std::unique_ptr<ParameterStore> store_of(const Grid& grid, int rank) {
  const int stage = rank % grid.stages;
  const int blocks = model.layers / grid.stages;
  const StageLayers layers{stage == 0, stage * blocks, blocks, stage == grid.stages - 1};
  ReplicaOptions options = grid.options;
  options.replica = rank / grid.stages;
  if (options.sdp()) give_masks(options, layers, grid.coverage);
  return std::make_unique<ParameterStore>(ExecutionSpace(), model, layers, 3, OptimizerKind::adamw,
                                          ReplicaLayout(model, layers, options));
}

// What a checkpoint has to hold of a part: by tensor, field and place.
std::vector<float> expected(const StoredPart& part) {
  const int width = part.full_shape.back();
  const auto tensor = static_cast<float>(std::hash<std::string>()(part.name) % 251);
  std::vector<float> values;
  for (int row = part.row; row < part.row + part.rows; ++row) {
    for (int column = part.column; column < part.column + part.columns; ++column) {
      const auto place = static_cast<float>(row * width + column);
      values.push_back(0.25f * (1.0f + static_cast<float>(part.field)) + tensor * 10000.0f + place);
    }
  }
  return values;
}

class ReplicaCheckpoint : public ::testing::Test {
 protected:
  ReplicaCheckpoint() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    int id = rank_ == 0 ? static_cast<int>(::getpid()) : 0;
    MPI_Bcast(&id, 1, MPI_INT, 0, MPI_COMM_WORLD);
    folder_ = std::filesystem::temp_directory_path() / ("minipipe_mpi_replica_checkpoint_" + std::to_string(id));
    if (rank_ == 0) std::filesystem::create_directories(folder_);
    MPI_Barrier(MPI_COMM_WORLD);
    path_ = checkpoint_path(folder_, 3);
    state_.step = 3;
  }
  ~ReplicaCheckpoint() override {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_ == 0) std::filesystem::remove_all(folder_);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  void save(const Grid& grid) const {
    const auto store = store_of(grid, rank_);
    for (const StoredPart& part : store->all_parts()) write_piece(part.array, part.piece, expected(part).data());
    save_checkpoint(MPI_COMM_WORLD, path_, {{store.get(), nullptr}}, state_);
  }
  // As rank `rank` of the grid.
  void expect_loaded(const Grid& grid, int rank) const {
    const auto store = store_of(grid, rank);
    load_checkpoint(path_, {{store.get(), nullptr}});
    for (const StoredPart& part : store->all_parts()) {
      std::vector<float> values(static_cast<std::size_t>(part.rows) * static_cast<std::size_t>(part.columns));
      read_piece(part.array, part.piece, values.data());
      ASSERT_EQ(values, expected(part)) << grid.name << ", rank " << rank << ": " << part.name;
    }
  }

  int rank_ = 0;
  int size_ = 1;
  std::filesystem::path folder_, path_;
  CheckpointState state_;
};

TEST_F(ReplicaCheckpoint, WrittenInAnyModeIsReadInAnyOther) {
  const std::vector<Grid> writers = grids(size_);
  for (std::size_t w = 0; w < writers.size(); ++w) {
    SCOPED_TRACE("written by " + writers[w].name);
    save(writers[w]);
    // The whole model, alone: every element must be there.
    if (rank_ == 0) expect_loaded({"alone", 1, 1, {}, 1}, 0);
    // Four grids of other ranks and modes; over all writers each reader has its turns.
    for (std::size_t i = 0; i < 4; ++i) {
      const std::vector<Grid> readers = grids(i % 2 == 0 ? size_ : 4);
      const Grid& reader = readers[(w * 5 + i * 3 + 1) % readers.size()];
      expect_loaded(reader, rank_ % reader.ranks());
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

// As if no replica held a unit that all know of.
TEST_F(ReplicaCheckpoint, WhatNoReplicaGivesIsAnErrorThatNamesIt) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  Grid grid{"one stage", size_, 1, {.mode = ReplicaMode::sdp, .replicas = size_, .unit = SdpUnit::block}, 0.5};
  grid.options.replica = rank_;
  const StageLayers layers{true, 0, model.layers, true};
  give_masks(grid.options, layers, grid.coverage);
  grid.options.masks.holders[2] = {size_ - 1};
  ReplicaOptions alone = grid.options;
  if (rank_ == size_ - 1) alone.masks.holders[2] = {0};  // the others believe that this one holds the block
  const auto store = std::make_unique<ParameterStore>(ExecutionSpace(), model, layers, 3, OptimizerKind::adamw,
                                                      ReplicaLayout(model, layers, alone));
  std::string text;
  try {
    save_checkpoint(MPI_COMM_WORLD, path_, {{store.get(), nullptr}}, state_);
  } catch (const RunError& error) {
    text = error.what();
  }
  EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("h.2."), ::testing::HasSubstr("are given by no rank")));
}

}  // namespace
}  // namespace minipipe::core
