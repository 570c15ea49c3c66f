#include <nlohmann/json.hpp>

#include "core/bench/report.hpp"

namespace minipipe::core {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Quartiles& q) { return {{"lower", q.lower}, {"median", q.median}, {"upper", q.upper}}; }

Json json_of(const KernelResult& k) {
  return {{"name", k.name},
          {"shape", k.shape},
          {"used", k.used},
          {"limit", k.limit},
          {"seconds", json_of(k.timing.seconds)},
          {"calls", k.timing.calls},
          {"flops", k.flops},
          {"bytes", k.bytes},
          {"working_set", k.working_set},
          {"rate", k.rate},
          {"reference", k.reference},
          {"share", k.share}};
}

Json json_of(const StepResult& step) {
  Json groups = Json::array();
  for (const GroupTime& g : step.groups) {
    groups.push_back({{"name", g.name}, {"calls", g.calls}, {"seconds", g.seconds}, {"share", g.share}});
  }
  const ToolEvents& e = step.events;
  Json events = {{"kernels", e.kernels},
                 {"allocations", e.allocations},
                 {"allocated_bytes", e.allocated_bytes},
                 {"deallocations", e.deallocations},
                 {"deep_copies", e.deep_copies},
                 {"deep_copied_bytes", e.deep_copied_bytes}};
  const Json of_bf16 = step.gemm_bf16_fraction ? Json(*step.gemm_bf16_fraction) : Json(nullptr);
  events["fences"] = tools_see_fences ? Json(e.fences) : Json(nullptr);
  return {{"seconds", json_of(step.seconds)},
          {"tokens_per_s", step.tokens_per_s},
          {"flops", step.flops},
          {"gemm_fraction", step.gemm_fraction},
          {"gemm_bf16_fraction", of_bf16},
          {"memory_bytes", step.memory_bytes},
          {"recorded_seconds", step.recorded_seconds},
          {"overhead_share", step.overhead_share},
          {"groups", groups},
          {"events", events}};
}

}  // namespace

std::string bench_json(const BenchReport& report) {
  const Machine& machine = report.machine;
  Json gemms = Json::array(), copies = Json::array(), kernels = Json::array();
  for (const GemmReference& g : report.gemms) {
    gemms.push_back(
        {{"name", g.name}, {"m", g.shape.m}, {"n", g.shape.n}, {"k", g.shape.k}, {"gflops", g.gflops}, {"drift", g.drift}});
  }
  for (const auto& [bytes, rate] : report.copies) copies.push_back({{"bytes", bytes}, {"gb_per_s", rate}});
  for (const KernelResult& k : report.kernels) kernels.push_back(json_of(k));
  const Json json = {{"model", report.model},
                     {"version", report.version},
                     {"git_hash", report.git_hash},
                     {"machine",
                      {{"host", machine.hosts},
                       {"cpu", machine.cpu},
                       {"execution_space", machine.execution_space},
                       {"threads", machine.threads},
                       {"kokkos", report.kokkos}}},
                     {"repeat", report.repeat},
                     {"references", {{"gemm", gemms}, {"copy", copies}}},
                     {"kernels", kernels},
                     {"step", json_of(report.step)},
                     {"deck", report.deck}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace minipipe::core
