#include <algorithm>
#include <functional>

#include "core/bench/report.hpp"
#include "core/io/hdf5.hpp"
#include "core/io/output_option.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

using hdf5::File;

void write_texts(const File& file, const std::string& name, const std::vector<std::string>& values) {
  std::size_t length = 1;
  for (const std::string& value : values) length = std::max(length, value.size());
  std::string padded(length * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i) values[i].copy(padded.data() + i * length, length);
  file.write_raw(name, {values.size()}, hdf5::string_type(length).get(), padded.data());
}

// A column of the list: one member of each.
template <class List, class Member>
void write_column(const File& file, const std::string& name, const List& list, Member member) {
  using Value = std::decay_t<std::invoke_result_t<Member, decltype(*list.begin())>>;
  std::vector<Value> values;
  for (const auto& item : list) values.push_back(std::invoke(member, item));
  if constexpr (std::is_same_v<Value, std::string>) {
    write_texts(file, name, values);
  } else {
    file.write(name, {values.size()}, values.data());
  }
}

void write_references(const File& file, const BenchReport& report) {
  file.make_group("/references/gemm");
  file.make_group("/references/copy");
  const std::string gemm = "/references/gemm/", copy = "/references/copy/";
  write_column(file, gemm + "name", report.gemms, &GemmReference::name);
  write_column(file, gemm + "m", report.gemms, [](const GemmReference& g) { return g.shape.m; });
  write_column(file, gemm + "n", report.gemms, [](const GemmReference& g) { return g.shape.n; });
  write_column(file, gemm + "k", report.gemms, [](const GemmReference& g) { return g.shape.k; });
  write_column(file, gemm + "gflops", report.gemms, &GemmReference::gflops);
  write_column(file, gemm + "drift", report.gemms, &GemmReference::drift);
  write_column(file, copy + "bytes", report.copies, [](const auto& c) { return c.first; });
  write_column(file, copy + "gb_per_s", report.copies, [](const auto& c) { return c.second; });
}

void write_kernels(const File& file, const std::vector<KernelResult>& kernels) {
  file.make_group("/kernels");
  const std::string at = "/kernels/";
  write_column(file, at + "name", kernels, &KernelResult::name);
  write_column(file, at + "shape", kernels, &KernelResult::shape);
  write_column(file, at + "used", kernels, [](const KernelResult& k) { return std::int32_t{k.used}; });
  write_column(file, at + "limit", kernels, &KernelResult::limit);
  write_column(file, at + "lower", kernels, [](const KernelResult& k) { return k.timing.seconds.lower; });
  write_column(file, at + "median", kernels, [](const KernelResult& k) { return k.timing.seconds.median; });
  write_column(file, at + "upper", kernels, [](const KernelResult& k) { return k.timing.seconds.upper; });
  write_column(file, at + "calls", kernels, [](const KernelResult& k) { return std::int32_t{k.timing.calls}; });
  write_column(file, at + "flops", kernels, &KernelResult::flops);
  write_column(file, at + "bytes", kernels, &KernelResult::bytes);
  write_column(file, at + "working_set", kernels, &KernelResult::working_set);
  write_column(file, at + "rate", kernels, &KernelResult::rate);
  write_column(file, at + "reference", kernels, &KernelResult::reference);
  write_column(file, at + "share", kernels, &KernelResult::share);
}

void write_step(const File& file, const StepResult& step) {
  file.make_group("/step/groups");
  file.set("/step", "lower", step.seconds.lower);
  file.set("/step", "median", step.seconds.median);
  file.set("/step", "upper", step.seconds.upper);
  file.set("/step", "tokens_per_s", step.tokens_per_s);
  file.set("/step", "flops", step.flops);
  file.set("/step", "gemm_fraction", step.gemm_fraction);
  if (step.gemm_bf16_fraction) file.set("/step", "gemm_bf16_fraction", *step.gemm_bf16_fraction);
  file.set("/step", "memory_bytes", step.memory_bytes);
  file.set("/step", "recorded_seconds", step.recorded_seconds);
  file.set("/step", "overhead_share", step.overhead_share);
  file.set("/step", "kernels", step.events.kernels);
  file.set("/step", "allocations", step.events.allocations);
  file.set("/step", "deep_copies", step.events.deep_copies);
  if (tools_see_fences) file.set("/step", "fences", step.events.fences);
  const std::string at = "/step/groups/";
  write_column(file, at + "name", step.groups, &GroupTime::name);
  write_column(file, at + "calls", step.groups, &GroupTime::calls);
  write_column(file, at + "seconds", step.groups, &GroupTime::seconds);
  write_column(file, at + "share", step.groups, &GroupTime::share);
}

// An upper bound, generous: the deck's text and a few hundred rows.
constexpr std::uint64_t most_bytes = std::uint64_t{2} << 20;

void fill(const std::filesystem::path& path, const BenchReport& report) {
  File file = File::create(path);
  file.set("/", "format", std::string("minipipe bench"));
  file.set("/", "format_version", std::int64_t{1});
  file.set("/", "version", report.version);
  file.set("/", "git_hash", report.git_hash);
  file.set("/", "deck", report.deck);
  file.set("/", "host", report.machine.hosts);
  file.set("/", "cpu", report.machine.cpu);
  file.set("/", "execution_space", report.machine.execution_space);
  file.set("/", "threads", report.machine.threads);
  file.set("/", "kokkos", report.kokkos);
  file.set("/", "repeat", std::int32_t{report.repeat});
  write_references(file, report);
  write_kernels(file, report.kernels);
  write_step(file, report.step);
  file.close();
}

}  // namespace

void write_bench(const std::filesystem::path& path, const BenchReport& report) {
  write_output("--out", path, most_bytes, [&](const std::filesystem::path& temporary) { fill(temporary, report); });
}

}  // namespace minipipe::core
