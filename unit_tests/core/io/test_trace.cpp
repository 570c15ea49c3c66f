#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/io/durable.hpp"
#include "core/io/trace.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/io/scratch.hpp"

namespace minipipe::core {
namespace {

using schedules::ActionLog;
using schedules::Kind;
using schedules::LoggedAction;
using ::testing::AllOf;
using testing::error_text;
using ::testing::HasSubstr;
using testing::read_all;
using testing::write_all;

class Trace : public testing::Scratch {
 protected:
  std::filesystem::path file_ = folder_ / "trace.h5";
};

TraceRow row(std::int64_t step) {
  const double x = static_cast<double>(step);
  return {step, step * 1024, 0.5 * x, 5.5 - 0.01 * x, 1e-3 / x, 1.0 + x};
}

LoggedAction entry(Kind kind, int stage, std::int64_t microbatch, double start) {
  return {{kind, stage, microbatch}, start, start + 0.25, microbatch / 2};
}

// Windows of two microbatches, an update after each.
ActionLog window(int stage, std::int64_t update) {
  const double start = 10.0 * static_cast<double>(update);
  const std::int64_t first = 2 * update;
  return {entry(Kind::forward, stage, first, start),
          entry(Kind::forward, stage, first + 1, start + 1),
          entry(Kind::backward_input, stage, first, start + 2),
          entry(Kind::backward_weight, stage, first, start + 3),
          entry(Kind::backward, stage, first + 1, start + 4),
          entry(Kind::update, stage, update, start + 5),
          entry(Kind::drain, stage, first + 2, start + 6)};
}

void expect_equal(const ActionLog& got, const ActionLog& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].action, want[i].action) << i;
    EXPECT_EQ(got[i].start_s, want[i].start_s) << i;
    EXPECT_EQ(got[i].end_s, want[i].end_s) << i;
    EXPECT_EQ(got[i].version, want[i].version) << i;
  }
}

TEST_F(Trace, RowsComeBackAsTheyWere) {
  TraceWriter writer(file_, {{"deck", "[run]\nname = \"x\"\n"}, {"host", ""}}, false);
  writer.append({row(1), row(2)});
  writer.flush();
  TraceRow unknown = row(3);
  unknown.grad_norm = std::numeric_limits<double>::quiet_NaN();
  writer.append({unknown});
  writer.append_validation({2, 4.25});
  writer.flush();
  const TraceReader reader(file_);
  const auto rows = reader.rows();
  ASSERT_EQ(rows.size(), 3u);
  for (std::int64_t step = 1; step <= 3; ++step) {
    const TraceRow& got = rows[static_cast<std::size_t>(step - 1)];
    EXPECT_EQ(got.step, step);
    EXPECT_EQ(got.tokens, row(step).tokens);
    EXPECT_EQ(got.time_s, row(step).time_s);
    EXPECT_EQ(got.loss, row(step).loss);
    EXPECT_EQ(got.lr, row(step).lr);
    if (step < 3) {
      EXPECT_EQ(got.grad_norm, row(step).grad_norm);
    }
  }
  EXPECT_TRUE(std::isnan(rows[2].grad_norm));
  ASSERT_EQ(reader.validation().size(), 1u);
  EXPECT_EQ(reader.validation()[0].step, 2);
  EXPECT_EQ(reader.validation()[0].loss, 4.25);
  EXPECT_EQ(reader.attributes(), (TraceAttributes{{"deck", "[run]\nname = \"x\"\n"}, {"host", ""}}));
}

TEST_F(Trace, ManyRowsCrossChunks) {
  TraceWriter writer(file_, {}, false);
  for (std::int64_t step = 1; step <= 3000; ++step) writer.append({row(step)});
  writer.flush();
  const auto rows = TraceReader(file_).rows();
  ASSERT_EQ(rows.size(), 3000u);
  EXPECT_EQ(rows[1024].loss, row(1025).loss);
  EXPECT_EQ(rows[2999].step, 3000);
}

TEST_F(Trace, ActionsOfAllKindsAndRanksComeBack) {
  ActionLog all;
  for (int code = 0; code <= static_cast<int>(Kind::drain); ++code)
    all.push_back(entry(static_cast<Kind>(code), 2, 5 + code, code));
  TraceWriter writer(file_, {}, false);
  writer.append_actions(0, window(0, 0));
  writer.append_actions(2, all);
  writer.flush();
  writer.append_actions(0, window(0, 1));
  writer.flush();
  const schedules::Log log = TraceReader(file_).actions();
  ASSERT_EQ(log.ranks.size(), 3u);
  ActionLog both = window(0, 0);
  for (const auto& next : window(0, 1)) both.push_back(next);
  expect_equal(log.ranks[0], both);
  EXPECT_TRUE(log.ranks[1].empty());
  expect_equal(log.ranks[2], all);
}

TEST_F(Trace, MemoryIsReplaced) {
  TraceWriter writer(file_, {}, false);
  writer.write_memory(1, {{"parameters", 10}, {"comm", 3}});
  writer.flush();
  writer.write_memory(1, {{"parameters", std::uint64_t{1} << 40}});
  writer.flush();
  EXPECT_EQ(TraceReader(file_).memory(1), (MemoryBytes{{"parameters", std::uint64_t{1} << 40}, {"comm", 3}}));
  EXPECT_TRUE(TraceReader(file_).memory(0).empty());
}

TEST_F(Trace, NothingReachesTheFileBeforeAFlush) {
  TraceWriter writer(file_, {}, false);
  const std::string before = read_all(file_);
  writer.append({row(1)});
  EXPECT_EQ(read_all(file_), before);
  writer.flush();
  EXPECT_EQ(TraceReader(file_).rows().size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(temporary_name(file_)));
}

TEST_F(Trace, ResumeTruncatesWhatIsBeyondTheCheckpoint) {
  {
    TraceWriter writer(file_, {{"host", "a"}}, false);
    for (std::int64_t update = 0; update < 4; ++update) {
      writer.append({row(update + 1)});
      writer.append_validation({update + 1, 1.0});
      writer.append_actions(0, window(0, update));
    }
    writer.flush();
  }
  TraceWriter writer(file_, {{"host", "b"}}, true);
  EXPECT_EQ(TraceReader(file_).rows().size(), 4u);
  writer.truncate_to(2, 4);
  const TraceReader reader(file_);
  ASSERT_EQ(reader.rows().size(), 2u);
  EXPECT_EQ(reader.rows().back().step, 2);
  EXPECT_EQ(reader.validation().size(), 2u);
  ActionLog kept = window(0, 0);
  for (const auto& next : window(0, 1)) kept.push_back(next);
  expect_equal(reader.actions().ranks.at(0), kept);
  EXPECT_EQ(reader.attributes().at("host"), "b");
  writer.append({row(3)});
  writer.append_actions(0, window(0, 2));
  writer.flush();
  EXPECT_EQ(reader.rows().back().loss, row(3).loss);
  EXPECT_EQ(reader.actions().ranks.at(0).size(), 21u);
}

TEST_F(Trace, AFreshStartReplacesAndAResumeWithoutAFileMakesOne) {
  {
    TraceWriter writer(file_, {}, true);
    writer.append({row(1)});
    writer.flush();
  }
  EXPECT_EQ(TraceReader(file_).rows().size(), 1u);
  TraceWriter fresh(file_, {}, false);
  EXPECT_TRUE(TraceReader(file_).rows().empty());
}

TEST_F(Trace, ATemporaryFileLeftBehindDoesNoHarm) {
  TraceWriter writer(file_, {}, false);
  write_all(temporary_name(file_), "half a file");
  writer.append({row(1)});
  writer.flush();
  EXPECT_EQ(TraceReader(file_).rows().size(), 1u);
}

TEST_F(Trace, DamagedAndMissingFilesAreBadInput) {
  EXPECT_THAT(error_text<InputError>([&] { TraceReader reader(file_); }), HasSubstr("no such file"));
  {
    TraceWriter writer(file_, {}, false);
    for (std::int64_t step = 1; step <= 2000; ++step) writer.append({row(step)});
    writer.flush();
  }
  const std::string whole = read_all(file_);
  write_all(file_, whole.substr(0, whole.size() / 2));
  EXPECT_THAT(error_text<InputError>([&] { TraceReader reader(file_); }), HasSubstr(file_.string()));
  EXPECT_THAT(error_text<InputError>([&] { TraceWriter writer(file_, {}, true); }), HasSubstr("move it away"));
}

TEST_F(Trace, AFailedFlushKeepsTheFileAndTheRows) {
  TraceWriter writer(file_, {}, false);
  writer.append({row(1)});
  writer.flush();
  for (std::int64_t step = 2; step <= 20000; ++step) writer.append({row(step)});
  {
    const testing::FileSizeLimit limit(std::size_t{512} << 10);
    EXPECT_THAT(error_text<RunError>([&] { writer.flush(); }), AllOf(HasSubstr(folder_.string()), HasSubstr("File too large")));
  }
  EXPECT_EQ(TraceReader(file_).rows().size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(temporary_name(file_)));
  writer.flush();
  EXPECT_EQ(TraceReader(file_).rows().size(), 20000u);
}

TEST_F(Trace, RoomThatWasReservedAndNotUsedIsGivenBack) {
  TraceWriter writer(file_, {}, false);
  const auto before = std::filesystem::file_size(file_);
  writer.append({row(1)});
  writer.flush();
  EXPECT_LT(std::filesystem::file_size(file_), before + 128 * 1024);
}

TEST_F(Trace, AVanishedFolderIsARunErrorThatNamesIt) {
  TraceWriter writer(file_, {}, false);
  std::filesystem::rename(folder_, folder_.string() + "_moved");
  writer.append({row(1)});
  EXPECT_THAT(error_text<RunError>([&] { writer.flush(); }), HasSubstr(file_.string()));
  std::filesystem::rename(folder_.string() + "_moved", folder_);
  writer.flush();  // the rows were kept
  EXPECT_EQ(TraceReader(file_).rows().size(), 1u);
}

}  // namespace
}  // namespace minipipe::core
