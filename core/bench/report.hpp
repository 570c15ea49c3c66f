#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/bench/references.hpp"
#include "core/bench/tool_recorder.hpp"
#include "core/profile/profile.hpp"

namespace minipipe::core {

struct KernelResult {
  std::string name, shape;
  bool used = true;        // the deck's model calls it
  std::string limit;       // what it is compared with: "gemm", "gemm_bf16" or "copy"
  Timing timing;           // of one call
  double flops = 0;        // of matrix products; 0 where the limit is "copy"
  double bytes = 0;        // that have to be moved
  double working_set = 0;  // bytes
  double rate = 0;         // 10^9 per second: operations, or bytes
  double reference = 0;    // the limit's rate, in the same unit
  double share = 0;        // rate / reference
};

// The kernels of one component (the middle of their labels) in a step.
struct GroupTime {
  std::string name;
  std::int64_t calls = 0;  // per step
  double seconds = 0;      // per step
  double share = 0;        // of the step
};

struct StepResult {
  Quartiles seconds;  // of a step, without anybody listening
  double tokens_per_s = 0;
  double flops = 0;          // of its matrix products, as summary.json counts them
  double gemm_fraction = 0;  // flops / (median step time x the hidden layer's matrix rate in float)
  // The same by the rate of bf16 matrices; decks in bf16 alone.
  std::optional<double> gemm_bf16_fraction;
  std::int64_t memory_bytes = 0;
  // From steps in which Kokkos Tools' callbacks were listened to.
  std::vector<GroupTime> groups;  // the longest first
  double recorded_seconds = 0;    // of such a step
  double overhead_share = 0;      // of it outside all kernels
  ToolEvents events;              // of one step; those of the recorded step with the most allocations
};

struct BenchReport {
  std::string deck;   // resolved, as TOML
  std::string model;  // one line
  std::string version, git_hash;
  Machine machine;
  std::string kokkos;  // Kokkos' own description of its configuration
  int repeat = 0;
  std::vector<GemmReference> gemms;
  std::map<std::int64_t, double> copies;
  std::vector<KernelResult> kernels;
  StepResult step;
};

// For people.
std::string bench_table(const BenchReport& report);

// One line. Names as in the structures above; times in seconds, rates in 10^9 per second; null what is not known.
std::string bench_json(const BenchReport& report);

// HDF5: root attributes format ("minipipe bench"), format_version, version, git_hash, deck, host, cpu, execution_space,
// threads, kokkos, repeat; /references/gemm/{name,m,n,k,gflops,drift}, /references/copy/{bytes,gb_per_s};
// /kernels/{name,shape,used,limit,lower,median,upper,calls,flops,bytes,working_set,rate,reference,share}; /step with attributes
// and /step/groups/{name,calls,seconds,share}. Replaces the file. Throws InputError if it cannot be made, RunError if it cannot
// be written.
void write_bench(const std::filesystem::path& path, const BenchReport& report);

}  // namespace minipipe::core
