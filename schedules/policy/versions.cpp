#include "schedules/policy/versions.hpp"

#include <algorithm>

namespace minipipe::schedules {
namespace {

// The papers' N-i: stages behind this one; plus the further forwards that PACI may admit.
std::int64_t lead(const ScheduleOptions& options, int stage) {
  const std::int64_t behind = options.stages - 1 - stage;
  return behind + (options.name == "paci" && behind > 0 ? options.extra_in_flight : 0);
}

}  // namespace

WeightRule weight_rule(const std::string& name) {
  if (name == "pipedream") return WeightRule::stashed;
  if (name == "pipedream-2bw") return WeightRule::double_buffered;
  return name == "pipemare" ? WeightRule::corrected : WeightRule::current;
}

std::int64_t weight_copies(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  switch (weight_rule(options.name)) {
    case WeightRule::stashed:
      return lead(options, stage) + 1;
    case WeightRule::double_buffered:
      return 2;
    default:
      return 1;
  }
}

std::int64_t version_used(const ScheduleOptions& options, int, Kind kind, std::int64_t microbatch, std::int64_t version_now,
                          std::int64_t forward_version) {
  switch (weight_rule(options.name)) {
    case WeightRule::stashed:
      return kind == Kind::forward ? version_now : forward_version;
    case WeightRule::double_buffered: {
      const std::int64_t window = microbatch / options.window;
      const std::int64_t begin = options.synchronous_updates;
      return window < begin ? window : std::max(window - 1, begin);
    }
    default:
      return version_now;
  }
}

std::int64_t version_gap_bound(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  const WeightRule rule = weight_rule(options.name);
  if (!is_asynchronous(options.name) || rule == WeightRule::stashed || rule == WeightRule::double_buffered) return 0;
  const std::int64_t window = effective_window(options);
  return (lead(options, stage) + window - 1) / window;
}

double version_gap_mean(const ScheduleOptions& options, int stage) {
  if (version_gap_bound(options, stage) == 0) return 0;
  return static_cast<double>(lead(options, stage)) / static_cast<double>(effective_window(options));
}

std::int64_t gradient_delay_bound(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  switch (weight_rule(options.name)) {
    case WeightRule::stashed:
      return lead(options, stage);
    case WeightRule::double_buffered:
      return 1;
    default:
      return version_gap_bound(options, stage);
  }
}

}  // namespace minipipe::schedules
