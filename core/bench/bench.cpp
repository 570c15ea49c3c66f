#include "core/bench/bench.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "core/bench/kernel_case.hpp"
#include "core/bench/step_runner.hpp"
#include "core/deck/print.hpp"
#include "core/profile/machine.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

KernelResult measure_case(const ExecutionSpace& space, int repeat, const KernelCase& c, References& references) {
  KernelResult result;
  result.name = c.name;
  result.shape = c.shape;
  result.used = c.used;
  result.limit = c.limit == Limit::copy ? "copy" : c.limit == Limit::gemm ? "gemm" : "gemm_bf16";
  result.flops = c.flops;
  result.bytes = c.bytes;
  result.working_set = c.working_set;
  result.timing = measure(space, repeat, c.run);
  const double work = c.limit == Limit::copy ? c.bytes : c.flops;
  result.rate = work / result.timing.seconds.median * 1e-9;
  if (c.limit == Limit::copy) {
    result.reference = references.copy_rate(static_cast<std::int64_t>(c.working_set));
  } else {
    result.reference = c.limit == Limit::gemm ? references.gemm_gflops() : references.bf16_gemm_gflops();
  }
  result.share = result.rate / result.reference;
  return result;
}

std::string describe(const Deck& deck) {
  const auto& m = deck.model;
  return m.family + ", " + std::to_string(m.layers) + " layers of width " + std::to_string(m.width) + ", " +
         std::to_string(m.heads) + " heads, vocabulary " + std::to_string(m.vocab) + "; " +
         std::to_string(deck.train.microbatches) + " x " + std::to_string(deck.train.microbatch_size) + " x " +
         std::to_string(deck.train.sequence) + " tokens per step, " + deck.train.optimizer + ", recompute " +
         deck.train.recompute;
}

}  // namespace

std::vector<KernelResult> bench_kernels(const Deck& deck, int repeat, References& references) {
  const ExecutionSpace space;
  const BenchShape shape{model_config(deck), train_shape(deck), static_cast<std::uint64_t>(deck.run.seed),
                         deck.precision.compute == "bf16"};
  std::vector<KernelResult> results;
  for (const auto build : {linear_cases, attention_cases, expert_cases, state_space_cases, norm_cases, elementwise_cases,
                           end_cases, adam_cases, muon_cases}) {
    for (const KernelCase& c : build(space, shape)) {
      results.push_back(measure_case(space, repeat, c, references));
      KernelResult& result = results.back();
      const std::string optimizer = deck.train.optimizer;
      if (result.name == "adamw::update") result.used = optimizer != "nadam";
      if (result.name == "nadam::update") result.used = optimizer == "nadam";
      if (result.name.starts_with("muon::update")) result.used = optimizer == "muon";
    }
  }
  return results;
}

std::string group_of(const std::string& label) {
  const std::string own = "minipipe::";
  if (label == "deep_copy") return label;
  if (!label.starts_with(own)) return "kokkos";
  return label.substr(own.size(), label.find("::", own.size()) - own.size());
}

StepResult bench_step(const Deck& deck, int repeat) {
  constexpr int warm_up = 2;
  StepRunner runner(one_stage_options(deck));
  StepResult result;
  result.memory_bytes = static_cast<std::int64_t>(runner.bytes().total());
  for (int i = 0; i < warm_up; ++i) runner.step();
  const auto timed_step = [&] {
    const Kokkos::Timer timer;
    runner.step();
    return timer.seconds();
  };
  std::vector<double> seconds;
  for (int i = 0; i < repeat; ++i) seconds.push_back(timed_step());
  result.seconds = quartiles(seconds);
  const double tokens = static_cast<double>(deck.train.microbatches * train_shape(deck).rows());
  result.tokens_per_s = tokens / result.seconds.median;
  result.flops = flops_per_microbatch(model_config(deck), train_shape(deck)) * static_cast<double>(deck.train.microbatches);

  ToolRecorder recorder;
  std::map<std::string, GroupTime> groups;
  for (int i = 0; i < repeat; ++i) {
    recorder.clear();
    result.recorded_seconds += timed_step() / repeat;
    for (const auto& [label, time] : recorder.times()) {
      GroupTime& group = groups[group_of(label)];
      group.calls += time.calls;
      group.seconds += time.seconds / repeat;
    }
    if (i == 0 || recorder.events().allocations > result.events.allocations) result.events = recorder.events();
  }
  double inside = 0;
  for (auto& [name, group] : groups) {
    group.name = name;
    group.calls /= repeat;
    group.share = group.seconds / result.recorded_seconds;
    inside += group.seconds;
    result.groups.push_back(group);
  }
  std::sort(result.groups.begin(), result.groups.end(),
            [](const GroupTime& a, const GroupTime& b) { return a.seconds > b.seconds; });
  result.overhead_share = 1 - inside / result.recorded_seconds;
  return result;
}

void check_repeat(int repeat) {
  if (repeat < least_repeat) {
    throw InputError("--repeat " + std::to_string(repeat) + ": quartiles need at least " + std::to_string(least_repeat) +
                     " samples; give --repeat " + std::to_string(least_repeat) + " or more");
  }
}

BenchReport run_bench(const Deck& deck, int repeat, const std::function<void(const std::string&)>& say) {
  check_repeat(repeat);
  validate(model_config(deck), train_shape(deck), 1);
  const auto tell = [&](const std::string& what) {
    if (say) say(what);
  };
  const ExecutionSpace space;
  BenchReport report;
  report.deck = print_deck(deck, false);
  report.model = describe(deck);
  report.machine = this_machine();
  report.repeat = repeat;
  std::ostringstream kokkos;
  Kokkos::print_configuration(kokkos, false);
  report.kokkos = kokkos.str();
  const bool with_bf16 = deck.precision.compute == "bf16";
  References references(space, repeat);
  tell("rates of matrix products");
  references.measure_gemms(model_config(deck), train_shape(deck), with_bf16);
  tell("a training step");
  report.step = bench_step(deck, repeat);
  tell("kernels");
  report.kernels = bench_kernels(deck, repeat, references);
  references.measure_gemms(model_config(deck), train_shape(deck), with_bf16);
  // By the final rate, which may be better than the one known before.
  for (KernelResult& kernel : report.kernels) {
    if (kernel.limit != "copy") {
      kernel.reference = kernel.limit == "gemm" ? references.gemm_gflops() : references.bf16_gemm_gflops();
      kernel.share = kernel.rate / kernel.reference;
    }
  }
  const double rate = report.step.flops / report.step.seconds.median * 1e-9;
  report.step.gemm_fraction = rate / references.gemm_gflops();
  if (with_bf16) report.step.gemm_bf16_fraction = rate / references.bf16_gemm_gflops();
  report.gemms = references.gemms();
  report.copies = references.copies();
  return report;
}

}  // namespace minipipe::core
