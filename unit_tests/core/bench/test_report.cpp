#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/bench/bench.hpp"
#include "core/io/hdf5.hpp"
#include "schedules/error.hpp"
#include "unit_tests/core/bench/decks.hpp"
#include "unit_tests/core/io/scratch.hpp"

namespace minipipe::core {
namespace {

class BenchReports : public testing::Scratch {};

// One measurement in its three forms.
TEST_F(BenchReports, TableJsonAndFileSayTheSame) {
  BenchReport report = run_bench(test::tiny_deck("gpt2"), 3);
  report.version = "1.2.3";
  const auto json = nlohmann::json::parse(bench_json(report));
  ASSERT_EQ(json.at("kernels").size(), report.kernels.size());
  EXPECT_EQ(json.at("kernels").at(2).at("name"), report.kernels[2].name);
  EXPECT_EQ(json.at("kernels").at(2).at("seconds").at("median"), report.kernels[2].timing.seconds.median);
  EXPECT_EQ(json.at("step").at("gemm_fraction"), report.step.gemm_fraction);
  EXPECT_TRUE(json.at("step").at("gemm_bf16_fraction").is_null());
  EXPECT_EQ(json.at("step").at("events").at("fences").is_null(), !tools_see_fences);
  EXPECT_EQ(json.at("machine").at("threads"), ExecutionSpace().concurrency());
  EXPECT_EQ(json.at("references").at("gemm").at(0).at("gflops"), report.gemms[0].gflops);
  EXPECT_EQ(bench_json(report).find('\n'), std::string::npos);

  const auto path = folder_ / "bench.h5";
  write_bench(path, report);
  const auto file = hdf5::File::open(path, false);
  EXPECT_EQ(file.get_text("/", "format"), "minipipe bench");
  EXPECT_EQ(file.get_text("/", "version"), "1.2.3");
  EXPECT_EQ(file.get_text("/", "deck"), report.deck);
  EXPECT_EQ(file.get<double>("/step", "gemm_fraction"), report.step.gemm_fraction);
  const auto medians = file.read<double>("/kernels/median"), shares = file.read<double>("/kernels/share");
  ASSERT_EQ(medians.size(), report.kernels.size());
  for (std::size_t i = 0; i < medians.size(); ++i) {
    EXPECT_EQ(medians[i], report.kernels[i].timing.seconds.median);
    EXPECT_EQ(shares[i], report.kernels[i].share);
  }
  EXPECT_EQ(file.read<double>("/references/copy/gb_per_s").size(), report.copies.size());

  const std::string table = bench_table(report);
  for (const KernelResult& kernel : report.kernels) EXPECT_NE(table.find(kernel.name), std::string::npos) << kernel.name;
  for (const GroupTime& group : report.step.groups) EXPECT_NE(table.find("\n" + group.name), std::string::npos) << group.name;
}

// A step's products by either matrix rate.
TEST_F(BenchReports, ADeckInBf16HasASecondShare) {
  Deck deck = test::tiny_deck("gpt2");
  deck.precision.compute = "bf16";
  const BenchReport report = run_bench(deck, 3);
  ASSERT_TRUE(report.step.gemm_bf16_fraction);
  EXPECT_NEAR(*report.step.gemm_bf16_fraction * report.gemms[2].gflops, report.step.gemm_fraction * report.gemms[0].gflops,
              1e-9 * report.gemms[0].gflops);
  EXPECT_EQ(nlohmann::json::parse(bench_json(report)).at("step").at("gemm_bf16_fraction"), *report.step.gemm_bf16_fraction);
  EXPECT_NE(bench_table(report).find("gemm_bf16_fraction"), std::string::npos);
  const std::filesystem::path path = folder_ / "bench.h5";
  write_bench(path, report);
  EXPECT_EQ(hdf5::File::open(path, false).get<double>("/step", "gemm_bf16_fraction"), *report.step.gemm_bf16_fraction);
}

TEST_F(BenchReports, UnwritableFileIsNamed) {
  try {
    write_bench(folder_ / "no" / "bench.h5", {});
    FAIL() << "was written";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("bench.h5"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace minipipe::core
