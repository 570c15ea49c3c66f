// Files for people and scripts: summary.json, timeline.json, the dump of one batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/io/batch_dump.hpp"
#include "core/io/chrome_trace.hpp"
#include "core/io/hdf5.hpp"
#include "core/io/summary.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/io/scratch.hpp"

namespace minipipe::core {
namespace {

using nlohmann::json;
using schedules::Kind;
using testing::error_text;
using ::testing::HasSubstr;
using testing::read_all;

class Reports : public testing::Scratch {};

TEST_F(Reports, SummaryHasEveryFixedKey) {
  Summary summary;
  summary.schedule = "paci";
  summary.ranks = 4;
  summary.stages = 2;
  summary.replicas = 2;
  summary.steps = 40;
  summary.tokens_per_s = 1234.5;
  summary.final_loss = 0.1;
  summary.validation_loss = std::numeric_limits<double>::infinity();
  summary.peak_bytes = {std::uint64_t{1} << 40, 2};
  summary.version_gap_max = {1, 0};
  summary.version_gap_mean = {0.5, 0.0};
  summary.seconds["compute"] = {1.0, 2.0};
  summary.numbers["bubble_predicted"] = 0.25;
  summary.texts["host"] = "node\xff";
  const std::string line = to_json(summary);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json parsed = json::parse(line);
  for (const char* key :
       {"schedule", "ranks", "stages", "replicas", "steps", "tokens_per_s", "step_time_s", "compute_share", "wait_share",
        "bubble_share", "gemm_fraction", "final_loss", "validation_loss", "peak_bytes", "version_gap", "seconds"}) {
    EXPECT_TRUE(parsed.contains(key)) << key;
  }
  EXPECT_EQ(parsed["schedule"], "paci");
  EXPECT_EQ(parsed["replicas"], 2);
  EXPECT_EQ(parsed["final_loss"].get<double>(), 0.1);
  EXPECT_TRUE(parsed["validation_loss"].is_null());
  EXPECT_TRUE(parsed["step_time_s"].is_null());
  EXPECT_EQ(parsed["peak_bytes"], json::array({std::uint64_t{1} << 40, 2}));
  EXPECT_EQ(parsed["version_gap"]["max"], json::array({1, 0}));
  EXPECT_EQ(parsed["version_gap"]["mean"], json::array({0.5, 0.0}));
  EXPECT_EQ(parsed["seconds"]["compute"][1], 2.0);
  EXPECT_EQ(parsed["bubble_predicted"], 0.25);
  write_summary(folder_ / "summary.json", summary);
  EXPECT_EQ(read_all(folder_ / "summary.json"), line + "\n");
  summary.numbers["ranks"] = 1;
  EXPECT_THAT(error_text<RunError>([&] { to_json(summary); }), HasSubstr("ranks"));
}

TEST_F(Reports, ListsOfAnEmptySummaryAreLists) {
  const json parsed = json::parse(to_json(Summary{}));
  EXPECT_TRUE(parsed["peak_bytes"].is_array());
  EXPECT_TRUE(parsed["version_gap"]["max"].is_array());
  EXPECT_TRUE(parsed["seconds"].is_object());
}

TEST_F(Reports, TimelineHasOneEventForEachAction) {
  schedules::Log measured;
  measured.ranks = {{{{Kind::forward, 0, 12}, 1.5, 1.75, 3}, {{Kind::forward, 3, 2}, 1.75, 2.0, 0}},
                    {{{Kind::send_gradient, 1, 4}, 2.0, 2.0, 0}}};
  schedules::Log predicted;
  predicted.ranks = {{{{Kind::backward, 0, 7}, 0.0, 1e-6, 0}}};
  write_chrome_trace(folder_ / "timeline.json", {{"measured", &measured}, {"predicted", &predicted}});
  const json parsed = json::parse(read_all(folder_ / "timeline.json"));
  std::vector<json> actions;
  std::vector<std::string> processes, rows;
  for (const json& event : parsed["traceEvents"]) {
    if (event["ph"] == "X") actions.push_back(event);
    if (event["name"] == "process_name") processes.push_back(event["args"]["name"]);
    if (event["name"] == "thread_name") rows.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(processes, (std::vector<std::string>{"measured", "predicted"}));
  EXPECT_EQ(rows, (std::vector<std::string>{"stage 0 (rank 0)", "stage 1 (rank 1)", "stage 3 (rank 0)", "stage 0 (rank 0)"}));
  ASSERT_EQ(actions.size(), 4u);
  EXPECT_EQ(actions[0]["name"], "F12");
  EXPECT_EQ(actions[0]["pid"], 0);
  EXPECT_EQ(actions[0]["tid"], 0);
  EXPECT_EQ(actions[0]["ts"], 1.5e6);
  EXPECT_EQ(actions[0]["dur"], 0.25e6);
  EXPECT_EQ(actions[0]["args"]["version"], 3);
  EXPECT_EQ(actions[2]["name"], "SEND_B4");
  EXPECT_EQ(actions[2]["tid"], 1);
  EXPECT_EQ(actions[3]["pid"], 1);
  EXPECT_EQ(actions[3]["dur"], 1.0);
  const schedules::Log empty;
  EXPECT_EQ(json::parse(chrome_trace({{"simulated", &empty}}))["traceEvents"].size(), 1u);
}

TEST_F(Reports, BatchDumpComesBack) {
  const std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6};
  const std::vector<std::int32_t> targets{2, 3, 4, 5, 6, 7};
  const std::vector<float> loss{0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
  BatchDump dump(folder_ / "batch.h5", 2, 3);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "batch.h5"));
  EXPECT_THROW(dump.write(tokens, targets, std::span(loss).first(5)), RunError);
  dump.write(tokens, targets, loss);
  const hdf5::File file = hdf5::File::open(folder_ / "batch.h5", false);
  EXPECT_EQ(file.shape("/tokens"), (std::vector<hsize_t>{2, 3}));
  EXPECT_EQ(file.read<std::int32_t>("/tokens"), tokens);
  EXPECT_EQ(file.read<std::int32_t>("/targets"), targets);
  EXPECT_EQ(file.shape("/loss"), (std::vector<hsize_t>{2, 3}));
  EXPECT_EQ(file.read<float>("/loss"), loss);
}

TEST_F(Reports, BatchDumpFailsEarlyAndLeavesNothingUnwritten) {
  EXPECT_THAT(error_text<InputError>([&] { BatchDump(folder_ / "gone" / "b.h5", 1, 1); }), HasSubstr("--dump-batch"));
  EXPECT_THROW(BatchDump(folder_, 1, 1), InputError);
  { BatchDump unwritten(folder_ / "b.h5", 1, 1); }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace minipipe::core
