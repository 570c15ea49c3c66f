#include "schedules/generate/planned_update.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include "schedules/error.hpp"
#include "schedules/generate/generators.hpp"
#include "schedules/plan/complete.hpp"
#include "schedules/plan/csv.hpp"

namespace minipipe::schedules {
namespace {

Plan make_plan(const ScheduleOptions& options) {
  const std::int64_t m = options.window;
  if (options.name == "interleaved") return interleaved_update(options.stages / options.chunks, options.chunks, m);
  if (options.name == "zb-h1") return zb_h1_update(options.stages, m);
  if (options.name == "zb-h2") return zb_h2_update(options.stages, m);
  if (options.name == "zb-v") return zb_v_update(options.stages / 2, m);
  if (options.name == "zb-auto") {
    // No stage can hold more than all microbatches; a larger number may not fit an integer.
    const double most = static_cast<double>(options.stages) * static_cast<double>(std::max<std::int64_t>(m, options.stages));
    const auto limit =
        options.memory_limit == 0 ? options.stages : static_cast<std::int64_t>(std::min(options.memory_limit, most));
    return zb_auto_update(options.stages, m, limit, options.costs);
  }
  throw InputError("schedule: " + options.name + " decides at run time and has no list of one update");
}

std::shared_ptr<const PlannedUpdate> described(Plan plan) {
  auto update = std::make_shared<PlannedUpdate>();
  update->placement = placement_of(plan, static_cast<int>(plan.ranks.size()));
  const auto stages = static_cast<std::size_t>(update->placement.stages());
  std::vector<std::int64_t> live(stages);
  update->peaks.resize(stages);
  for (const ActionList& list : plan.ranks) {
    for (const Action& action : list) {
      const auto s = static_cast<std::size_t>(action.stage);
      if (action.kind == Kind::forward) update->peaks[s] = std::max(update->peaks[s], ++live[s]);
      if (action.kind == Kind::backward || action.kind == Kind::backward_weight) --live[s];
      update->splits_backward |= action.kind == Kind::backward_input;
    }
  }
  update->plan = std::move(plan);
  return update;
}

// A plan file as it was when it was read. Its time tells whether it has changed since, unless it was written so shortly before
// that a second write may have the same time; then its text does.
struct PlanFile {
  std::filesystem::file_time_type written;
  std::uintmax_t bytes = 0;
  bool settled = false;
  std::string text;
  std::shared_ptr<const PlannedUpdate> update;
};

PlanFile state_of(const std::string& file) {
  constexpr std::chrono::seconds certain(2);
  PlanFile state;
  std::error_code error;
  state.written = std::filesystem::last_write_time(file, error);
  state.bytes = error ? 0 : std::filesystem::file_size(file, error);
  state.settled = !error && state.written + certain < std::filesystem::file_time_type::clock::now();
  return state;
}

std::string text_of(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw InputError(file + ": cannot be opened; name a CSV plan in schedule.plan");
  std::string text;
  std::array<char, 1 << 16> part;
  while (stream.read(part.data(), part.size()) || stream.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (stream.bad()) throw InputError(file + ": cannot be read to its end");
  return text;
}

std::shared_ptr<const PlannedUpdate> update_of_file(const ScheduleOptions& options, std::optional<PlanFile>& kept) {
  PlanFile now = state_of(options.plan_file);
  if (kept && kept->settled && now.settled && kept->written == now.written && kept->bytes == now.bytes) return kept->update;
  now.text = text_of(options.plan_file);
  if (kept && kept->text == now.text) {
    now.update = kept->update;
  } else {
    std::istringstream stream(now.text);
    Plan plan = complete_plan(read_csv(stream, options.plan_file), options);
    validate_plan(plan, options, options.plan_file);
    now.update = described(std::move(plan));
  }
  kept = std::move(now);
  return kept->update;
}

}  // namespace

std::shared_ptr<const PlannedUpdate> planned_update(const ScheduleOptions& options) {
  validate(options);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (options.name == "plan") {
    using Key = std::tuple<std::string, int, std::int64_t>;
    static std::map<Key, std::optional<PlanFile>> files;
    return update_of_file(options, files[{options.plan_file, options.stages, options.window}]);
  }
  using Key = std::tuple<std::string, int, std::int64_t, int, double, double, double, double>;
  static std::map<Key, std::shared_ptr<const PlannedUpdate>> made;
  const PassCosts& costs = options.costs;
  const Key key{options.name,         options.stages, options.window,       options.chunks,
                options.memory_limit, costs.forward,  costs.backward_input, costs.backward_weight};
  std::shared_ptr<const PlannedUpdate>& update = made[key];
  if (!update) update = described(make_plan(options));
  return update;
}

}  // namespace minipipe::schedules
