#include <cstdarg>
#include <cstdio>

#include "core/bench/report.hpp"

namespace minipipe::core {

namespace {

[[gnu::format(printf, 2, 3)]] void add(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

// Half of the distance between the quartiles, relative to the median, in per cent.
double spread(const Quartiles& q) { return q.median > 0 ? 50 * (q.upper - q.lower) / q.median : 0; }

void add_kernels(std::string& text, const BenchReport& report, const std::string& limit, const char* title, const char* unit) {
  add(text, "\n%-34s %-28s %11s %8s %9s %8s\n", title, "shape", "median us", "+- %", unit, "share %");
  for (const KernelResult& k : report.kernels) {
    if (k.limit != limit) continue;
    const Quartiles& s = k.timing.seconds;
    add(text, "%-34s %-28s %11.2f %8.1f %9.2f %8.1f%s\n", k.name.c_str(), k.shape.c_str(), 1e6 * s.median, spread(s), k.rate,
        100 * k.share, k.used ? "" : "  not in this model");
  }
}

}  // namespace

std::string bench_table(const BenchReport& report) {
  std::string text = report.model + "\n";
  const Machine& machine = report.machine;
  add(text, "%s, %s, %s, threads: %lld, samples: %d\n\n", machine.hosts.c_str(), machine.cpu.c_str(),
      machine.execution_space.c_str(), static_cast<long long>(machine.threads), report.repeat);
  for (const GemmReference& g : report.gemms) {
    add(text, "matrix rate, %-7s %6lld x %6lld x %6lld %10.2f GFLOP/s, changed by %.1f %% meanwhile\n", g.name.c_str(),
        static_cast<long long>(g.shape.m), static_cast<long long>(g.shape.n), static_cast<long long>(g.shape.k), g.gflops,
        100 * g.drift);
  }
  for (const GemmReference& g : report.gemms) {
    if (g.drift > 0.1) {
      text += "  warning: so large a change means that something else used the machine; measure again when it is idle\n";
      break;
    }
  }
  for (const auto& [bytes, rate] : report.copies) {
    add(text, "copy rate, %12.3f MB %10.2f GB/s read and written\n", 1e-6 * static_cast<double>(bytes), rate);
  }
  add_kernels(text, report, "gemm", "limited by matrix rate (hidden)", "GFLOP/s");
  if (report.gemms.size() > 2) {
    add_kernels(text, report, "gemm_bf16", "limited by matrix rate (bf16)", "GFLOP/s");
  }
  add_kernels(text, report, "copy", "limited by copy rate", "GB/s");
  text += "(in place a kernel can reach 150 %: its stores need not read lines first, those of the copy do)\n";

  const StepResult& step = report.step;
  add(text, "\nstep %.3f ms (+- %.1f %%), %.1f tokens/s, gemm_fraction %.3f, %.1f MB\n", 1e3 * step.seconds.median,
      spread(step.seconds), step.tokens_per_s, step.gemm_fraction, 1e-6 * static_cast<double>(step.memory_bytes));
  if (step.gemm_bf16_fraction) {
    add(text, "gemm_fraction is of the rate of fp32 matrices; gemm_bf16_fraction %.3f of that of bf16\n",
        *step.gemm_bf16_fraction);
  }
  add(text, "%-16s %10s %12s %8s   (step while recorded: %.3f ms)\n", "group", "calls", "ms", "share %",
      1e3 * step.recorded_seconds);
  for (const GroupTime& g : step.groups) {
    add(text, "%-16s %10lld %12.3f %8.1f\n", g.name.c_str(), static_cast<long long>(g.calls), 1e3 * g.seconds, 100 * g.share);
  }
  add(text, "%-16s %10s %12.3f %8.1f\n", "outside kernels", "", 1e3 * step.overhead_share * step.recorded_seconds,
      100 * step.overhead_share);
  const ToolEvents& e = step.events;
  add(text, "in a step: %lld kernels, %lld allocations (%lld bytes), %lld deep copies (%lld bytes), fences %s\n",
      static_cast<long long>(e.kernels), static_cast<long long>(e.allocations), static_cast<long long>(e.allocated_bytes),
      static_cast<long long>(e.deep_copies), static_cast<long long>(e.deep_copied_bytes),
      tools_see_fences ? std::to_string(e.fences).c_str() : "not seen by this Kokkos (from 3.5 on)");
  if (e.allocations > 0) text += "  the first allocation: " + e.first_allocation + "\n";
  if (e.deep_copies > 0) text += "  the first deep copy: " + e.first_deep_copy + "\n";
  return text;
}

}  // namespace minipipe::core
