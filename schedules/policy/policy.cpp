#include "schedules/policy/policy.hpp"

#include <algorithm>

#include "schedules/error.hpp"
#include "schedules/policy/windowed.hpp"

namespace minipipe::schedules {
namespace {

void require_at_least(const char* what, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw InputError(std::string("schedule: ") + what + " is " + std::to_string(value) + "; use " + std::to_string(least) +
                   " or more");
}

void validate(const ScheduleOptions& options, int stage) {
  validate(options);
  if (stage >= 0 && stage < options.stages) return;
  throw InputError("schedule: there is no stage " + std::to_string(stage) + " among " + std::to_string(options.stages) +
                   " stages (counted from 0)");
}

// The papers' N-i: stages behind this one; plus the further forwards that PACI may admit.
std::int64_t lead(const ScheduleOptions& options, int stage) {
  const int behind = options.stages - 1 - stage;
  return behind + (options.name == "paci" && behind > 0 ? options.extra_in_flight : 0);
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"gpipe", "1f1b", "paci"};
  return names;
}

bool is_asynchronous(const std::string& name) { return name == "paci"; }

void validate(const ScheduleOptions& options) {
  const auto& names = schedule_names();
  if (std::find(names.begin(), names.end(), options.name) == names.end()) {
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    throw InputError("schedule: unknown name '" + options.name + "'; use one of " + known);
  }
  require_at_least("number of stages", options.stages, 1);
  require_at_least("number of microbatches per update", options.window, 1);
  if (options.name == "paci") {
    require_at_least("extra_in_flight", options.extra_in_flight, 0);
    require_at_least("synchronous_updates", options.synchronous_updates, 0);
  }
}

std::unique_ptr<Policy> make_policy(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  if (options.name == "gpipe") return make_gpipe(options, stage);
  if (options.name == "1f1b") return make_one_forward_one_backward(options, stage);
  return make_paci(options, stage);
}

std::int64_t activation_slots(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  if (options.name == "gpipe") return options.window;
  const std::int64_t slots = lead(options, stage) + 1;
  return is_asynchronous(options.name) ? slots : std::min(slots, options.window);
}

std::int64_t version_gap_bound(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  if (!is_asynchronous(options.name)) return 0;
  return (lead(options, stage) + options.window - 1) / options.window;
}

double version_gap_mean(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  if (!is_asynchronous(options.name)) return 0;
  return static_cast<double>(lead(options, stage)) / static_cast<double>(options.window);
}

}  // namespace minipipe::schedules
