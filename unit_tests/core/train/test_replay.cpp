#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/io/hdf5.hpp"
#include "core/train/replay.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/train/decks.hpp"

namespace minipipe::core {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Property;
using ::testing::Throws;

class Replay : public ::testing::Test {
 protected:
  std::string file(const std::string& text) {
    const auto path = std::filesystem::temp_directory_path() / ("minipipe_replay_" + std::to_string(getpid()) + ".csv");
    std::ofstream(path) << text;
    return path.string();
  }
};

TEST_F(Replay, ListsAreByStageWhicheverRankRecordedThem) {
  const auto plan = read_replay(file("1F0,0F0,1B0,0B0,1U0,0U0\n"), 2);
  ASSERT_EQ(plan.ranks.size(), 2U);
  EXPECT_EQ(plan.ranks[0].size(), 3U);
  EXPECT_EQ(plan.ranks[1].front(), (schedules::Action{schedules::Kind::forward, 1, 0}));
}

TEST_F(Replay, AStageTheRunDoesNotHaveIsNamed) {
  EXPECT_THAT([&] { read_replay(file("0F0,3F0\n"), 2); }, Throws<InputError>(Property(&InputError::what, HasSubstr("3F0"))));
}

TEST_F(Replay, AMissingFileIsNamed) {
  EXPECT_THAT([] { read_replay("absent.csv", 2); }, Throws<InputError>(Property(&InputError::what, HasSubstr("absent.csv"))));
}

TEST_F(Replay, AFileThatIsNoTraceIsTold) {
  const std::string path = std::filesystem::temp_directory_path() / ("minipipe_replay_" + std::to_string(getpid()) + ".h5");
  hdf5::File file = hdf5::File::create(path);
  file.make_group("/model");
  file.close();
  EXPECT_THAT([&] { read_replay(path, 2); },
              Throws<InputError>(Property(&InputError::what, AllOf(HasSubstr("schedule.replay = \"" + path + "\": "),
                                                                   HasSubstr(path + ": is not a trace; give the trace.h5")))));
  std::filesystem::remove(path);
}

TEST_F(Replay, ThePartOfALogIsGivenOut) {
  const auto plan = read_replay(file("0F0,0B0,0U0,0F1,0B1,0U1\n"), 1);
  const auto policy = replay_policy(plan, 0, 1, 2, 1);
  schedules::StageState state;
  state.forwards = state.backwards = state.weights = state.updates = 1;
  state.segment_begin = 1;
  state.segment_end = 2;
  state.input_ready = true;
  EXPECT_EQ(policy->next(state), schedules::Kind::forward);
}

TEST_F(Replay, AShorterLogIsRefused) {
  const auto plan = read_replay(file("0F0,0B0,0U0\n"), 1);
  EXPECT_THAT([&] { replay_policy(plan, 0, 0, 2, 1); },
              Throws<InputError>(Property(&InputError::what, HasSubstr("set run.steps and train.microbatches"))));
}

}  // namespace
}  // namespace minipipe::core
