#include "schedules/check/versions.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "schedules/policy/versions.hpp"

namespace minipipe::schedules {
namespace {

struct StageVersions {
  std::int64_t version = 0;
  bool based = false;
  std::unordered_map<std::int64_t, PassVersions> open;  // forward done, backward not
  std::vector<std::size_t> pending;                     // indices in the result whose gradient waits for the update
};

// Versions before the first update of a stage: its number.
std::unordered_map<int, StageVersions> begin(const ActionList& actions) {
  std::unordered_map<int, StageVersions> stages;
  for (const Action& action : actions) {
    StageVersions& stage = stages[action.stage];
    if (action.kind != Kind::update || stage.based) continue;
    stage.based = true;
    stage.version = action.microbatch;
  }
  return stages;
}

}  // namespace

std::vector<PassVersions> versions_of(const ActionList& actions, const ScheduleOptions& options) {
  std::vector<PassVersions> result;
  auto stages = begin(actions);
  for (const Action& action : actions) {
    StageVersions& stage = stages[action.stage];
    const std::int64_t k = action.microbatch;
    if (action.kind == Kind::forward) {
      stage.open[k] = {action.stage, k, version_used(options, action.stage, Kind::forward, k, stage.version, 0), {}, {}};
    } else if (action.kind == Kind::backward || action.kind == Kind::backward_input) {
      const auto found = stage.open.find(k);
      if (found == stage.open.end()) continue;
      PassVersions pass = found->second;
      stage.open.erase(found);
      pass.backward = version_used(options, action.stage, action.kind, k, stage.version, pass.forward);
      stage.pending.push_back(result.size());
      result.push_back(pass);
    } else if (action.kind == Kind::update) {
      for (const std::size_t index : stage.pending) result[index].applied = stage.version;
      stage.pending.clear();
      ++stage.version;
    }
  }
  for (const auto& [number, stage] : stages) {
    for (const auto& [microbatch, pass] : stage.open) result.push_back(pass);
  }
  return result;
}

std::vector<std::int64_t> histogram(const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> result;
  for (const std::int64_t value : values) {
    const auto index = static_cast<std::size_t>(std::max<std::int64_t>(value, 0));
    if (index >= result.size()) result.resize(index + 1);
    ++result[index];
  }
  return result;
}

VersionReport measure_versions(const Plan& plan, const ScheduleOptions& options) {
  const auto stages = static_cast<std::size_t>(options.stages);
  std::vector<std::vector<std::int64_t>> gaps(stages), delays(stages);
  std::map<std::int64_t, std::int64_t> first, last;  // forward versions by microbatch
  for (const ActionList& list : plan.ranks) {
    for (const PassVersions& pass : versions_of(list, options)) {
      const auto s = static_cast<std::size_t>(pass.stage);
      if (s >= stages) continue;
      if (pass.backward) gaps[s].push_back(*pass.backward - pass.forward);
      if (pass.applied) delays[s].push_back(*pass.applied - pass.forward);
      if (s == 0) first[pass.microbatch] = pass.forward;
      if (s + 1 == stages) last[pass.microbatch] = pass.forward;
    }
  }
  VersionReport report;
  for (std::size_t s = 0; s < stages; ++s) {
    report.gap_histogram.push_back(histogram(gaps[s]));
    report.delay_histogram.push_back(histogram(delays[s]));
  }
  for (const auto& [microbatch, version] : first) {
    if (const auto found = last.find(microbatch); found != last.end()) report.skew.push_back(found->second - version);
  }
  return report;
}

}  // namespace minipipe::schedules
