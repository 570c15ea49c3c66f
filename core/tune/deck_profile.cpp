#include "core/tune/deck_profile.hpp"

#include <algorithm>
#include <numeric>
#include <sstream>

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
    const double factor = deck.emulate.stage_factors.empty() ? 1.0 : deck.emulate.stage_factors[s];
    if (partition[s] == 0) {
      throw InputError("schedule.partition: stage " + std::to_string(s) +
                       " has no layers to share its emulated time; give it one, or use a profile");
    }
    const auto first = costs.begin() + static_cast<std::ptrdiff_t>(profile.layers.size());
    const double sum = std::accumulate(first, first + partition[s], 0.0);
    for (auto cost = first; cost != first + partition[s]; ++cost) {
      const double share = factor * *cost / sum;
      profile.layers.push_back({.forward = share * deck.emulate.forward_ms,
                                .backward_input = 0.5 * share * deck.emulate.backward_ms,
                                .backward_weight = 0.5 * share * deck.emulate.backward_ms});
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
  if (!deck.emulate.enabled || !(deck.emulate.forward_ms > 0)) return overrides;
  std::vector<double> factors;
  for (const auto& stage : schedules::CostSums(profile).stages(partition)) {
    factors.push_back(stage.forward / deck.emulate.forward_ms);
  }
  overrides.push_back("emulate.stage_factors=" + list(factors));
  return overrides;
}

}  // namespace minipipe::core
