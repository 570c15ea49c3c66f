#include "schedules/policy/options.hpp"

#include <algorithm>

#include "schedules/error.hpp"
#include "schedules/generate/planned_update.hpp"

namespace minipipe::schedules {
namespace {

void require_at_least(const char* what, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw InputError(std::string("schedule: ") + what + " is " + std::to_string(value) + "; use " + std::to_string(least) +
                   " or more");
}

void require(bool condition, const ScheduleOptions& options, const std::string& rule) {
  if (!condition) throw InputError("schedule: " + options.name + " " + rule);
}

// Rules of the schedules whose order is a list.
void validate_planned(const ScheduleOptions& options) {
  const std::string stages = std::to_string(options.stages), chunks = std::to_string(options.chunks);
  if (options.name == "interleaved") {
    require_at_least("chunks", options.chunks, 1);
    require(options.stages % options.chunks == 0, options,
            "puts the same number of stages on each rank, but " + stages + " stages are not a multiple of chunks = " + chunks +
                "; change one of them");
  }
  if (options.name == "zb-v") {
    require(options.chunks == 2 && options.stages % 2 == 0, options,
            "needs chunks = 2 and an even number of stages, two on each rank, not chunks = " + chunks + " and " + stages +
                " stages");
  }
  if (options.name == "zb-auto") {
    require(options.memory_limit == 0 || options.memory_limit >= 1, options,
            "needs a memory_limit of 1 or more activations of one stage, or 0 for as many as there are stages");
    const PassCosts& costs = options.costs;
    require(costs.forward > 0 && costs.backward_input > 0 && costs.backward_weight > 0, options,
            "needs costs above 0 for all three passes");
  }
  if (options.name == "plan") require(!options.plan_file.empty(), options, "needs the name of a CSV file in schedule.plan");
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names{"gpipe",         "1f1b",     "interleaved", "zb-h1",      "zb-h2",
                                              "zb-v",          "zb-auto",  "paci",        "async-1f1b", "pipedream",
                                              "pipedream-2bw", "pipemare", "plan"};
  return names;
}

bool is_asynchronous(const std::string& name) {
  return name == "paci" || name == "async-1f1b" || name == "pipedream" || name == "pipedream-2bw" || name == "pipemare";
}

bool is_planned(const std::string& name) { return name == "interleaved" || name.starts_with("zb-") || name == "plan"; }

void validate(const ScheduleOptions& options) {
  const auto& names = schedule_names();
  if (std::find(names.begin(), names.end(), options.name) == names.end()) {
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    throw InputError("schedule: unknown name '" + options.name + "'; use one of " + known);
  }
  require_at_least("number of stages", options.stages, 1);
  require_at_least("number of microbatches per update", options.window, 1);
  if (options.name == "paci") require_at_least("extra_in_flight", options.extra_in_flight, 0);
  if (is_asynchronous(options.name)) require_at_least("synchronous_updates", options.synchronous_updates, 0);
  if (options.name == "pipedream-2bw") {
    require(options.window >= options.stages, options,
            "keeps two versions of the weights, which is enough only with as many microbatches per update as stages, " +
                std::to_string(options.stages) + ", or more, not " + std::to_string(options.window));
  }
  if (is_planned(options.name)) validate_planned(options);
}

void validate(const ScheduleOptions& options, int stage) {
  validate(options);
  if (stage >= 0 && stage < options.stages) return;
  throw InputError("schedule: there is no stage " + std::to_string(stage) + " among " + std::to_string(options.stages) +
                   " stages (counted from 0)");
}

std::int64_t effective_window(const ScheduleOptions& options) {
  return options.name == "async-1f1b" || options.name == "pipedream" ? 1 : options.window;
}

std::int64_t activation_slots(const ScheduleOptions& options, int stage) {
  validate(options, stage);
  if (is_planned(options.name)) return planned_update(options)->peaks[static_cast<std::size_t>(stage)];
  if (options.name == "gpipe") return options.window;
  const std::int64_t behind = options.stages - 1 - stage;
  if (!is_asynchronous(options.name)) return std::min(behind + 1, options.window);
  return behind + 1 + (options.name == "paci" && behind > 0 ? options.extra_in_flight : 0);
}

}  // namespace minipipe::schedules
