#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedules/plan/plan.hpp"
#include "schedules/policy/options.hpp"

namespace minipipe::schedules {

// The weight versions that one microbatch met on one stage.
struct PassVersions {
  int stage = 0;
  std::int64_t microbatch = 0;
  std::int64_t forward = 0;              // used by the forward
  std::optional<std::int64_t> backward;  // used by the backward (input gradient)
  std::optional<std::int64_t> applied;   // the version that the update with its weight gradient was applied to
};

// In the order of the backwards; those without one come last. Versions begin at the first U's number of the stage, or 0.
std::vector<PassVersions> versions_of(const ActionList& actions, const ScheduleOptions& options);

// [v] = how often v occurs; negative values, which only a broken list has, count as 0.
std::vector<std::int64_t> histogram(const std::vector<std::int64_t>& values);

// Version arithmetic of a whole run, by stage. Indices of the vectors below: stage, then value.
struct VersionReport {
  std::vector<std::vector<std::int64_t>> gap_histogram;    // backward's minus forward's version
  std::vector<std::vector<std::int64_t>> delay_histogram;  // version the gradient is applied to minus forward's
  std::vector<std::int64_t> skew;  // by microbatch, ascending: forward's version at the last stage minus first
};

VersionReport measure_versions(const Plan& plan, const ScheduleOptions& options);

}  // namespace minipipe::schedules
