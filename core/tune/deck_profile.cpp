#include "core/tune/deck_profile.hpp"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "core/deck/emulated_times.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {
template <typename T>
std::string list(const std::vector<T>& values) {
  std::ostringstream text;
  text.precision(17);
  for (const T& value : values) text << (text.tellp() == 0 ? "[" : ",") << value;
  text << (values.empty() ? "[]" : "]");
  return text.str();
}

// The deck says of its stages more than a factor.
bool has_stage_times(const Deck& deck) {
  const auto lists = stage_time_lists(deck);
  return std::any_of(lists.begin(), lists.end(), [](const StageTimeList& list) { return !list.times.empty(); });
}
}  // namespace

schedules::CostProfile deck_profile(const Deck& deck, int stages, const std::vector<double>& relative_costs) {
  if (!deck.emulate.enabled) {
    throw InputError(
        "tune: the deck does not say what its layers cost; measure them with mpirun -n N minipipe profile DECK --out FILE.h5\n"
        "and give --profile FILE.h5, or give costs of your own with --profile FILE.json, or set emulate.enabled = true");
  }
  schedules::CostProfile profile;
  profile.name = deck.run.name;
  const std::string& pattern = deck.model.pattern;
  profile.pattern = pattern.empty() ? std::string(static_cast<std::size_t>(deck.model.layers), 'T') : pattern;
  const std::vector<double> costs = relative_costs.empty() ? std::vector<double>(profile.pattern.size(), 1.0) : relative_costs;
  std::vector<int> partition = deck.schedule.partition;
  if (partition.empty()) partition = schedules::uniform_partition(deck.model.layers, stages);
  for (std::size_t s = 0; s < partition.size(); ++s) {
    const EmulatedTimes times = emulated_times(deck, static_cast<int>(s));
    if (partition[s] == 0) {
      throw InputError("schedule.partition: stage " + std::to_string(s) +
                       " has no layers to share its emulated time; give it one, or use a profile");
    }
    const auto first = costs.begin() + static_cast<std::ptrdiff_t>(profile.layers.size());
    const double sum = std::accumulate(first, first + partition[s], 0.0);
    for (auto cost = first; cost != first + partition[s]; ++cost) {
      const double share = *cost / sum;
      profile.layers.push_back(
          {.forward = share * times.forward, .backward_input = share * times.input, .backward_weight = share * times.weight});
    }
  }
  const auto& links = deck.emulate.link_latencies_ms;
  profile.link = links.empty() ? deck.emulate.link_latency_ms : *std::max_element(links.begin(), links.end());
  if (deck.emulate.link_mb_per_s > 0) {
    profile.link += 1e-3 * static_cast<double>(deck.emulate.message_bytes) / deck.emulate.link_mb_per_s;
  }
  return profile;
}

std::vector<std::string> plan_overrides(const std::vector<int>& partition, const std::string& plan_file) {
  return {"schedule.name=plan", "schedule.plan=" + plan_file, "schedule.partition=" + list(partition),
          "parallel.stages=" + std::to_string(partition.size())};
}

std::vector<std::string> plan_overrides(const Deck& deck, const schedules::CostProfile& profile,
                                        const std::vector<int>& partition, const std::string& plan_file) {
  std::vector<std::string> overrides = plan_overrides(partition, plan_file);
  if (!deck.emulate.enabled) return overrides;
  const auto stages = schedules::CostSums(profile).stages(partition);
  const auto add = [&](const char* key, double schedules::LayerCosts::*time, double unit) {
    std::vector<double> values;
    for (const schedules::LayerCosts& stage : stages) values.push_back(stage.*time / unit);
    overrides.push_back(std::string("emulate.") + key + "=" + list(values));
  };
  if (!has_stage_times(deck)) {
    if (deck.emulate.forward_ms > 0) add("stage_factors", &schedules::LayerCosts::forward, deck.emulate.forward_ms);
    return overrides;
  }
  add("stage_forward_ms", &schedules::LayerCosts::forward, 1);
  add("stage_input_ms", &schedules::LayerCosts::backward_input, 1);
  add("stage_weight_ms", &schedules::LayerCosts::backward_weight, 1);
  // The tuner knows nothing of updates, and the lists must fit the number of stages.
  overrides.push_back("emulate.stage_factors=[]");
  overrides.push_back("emulate.stage_update_ms=[]");
  return overrides;
}

}  // namespace minipipe::core
