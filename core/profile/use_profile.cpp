#include "core/profile/use_profile.hpp"

#include "core/train/options.hpp"
#include "core/train/planned_traffic.hpp"
#include "core/train/preflight.hpp"
#include "schedules/simulate/steady_step.hpp"

namespace minipipe::core {

namespace {

double version_seconds(const RankProfile& times, const KokkosStageOptions& options) {
  switch (options.weight_rule) {
    case WeightRule::stashed:
      return options.weight_copies > 1 ? times.weight_copy : 0;
    case WeightRule::double_buffered:
      return times.weight_copy;
    case WeightRule::corrected:
      return times.weight_correct;
    default:
      return 0;
  }
}

}  // namespace

std::vector<double> exchange_seconds(const Profile& profile, const Deck& deck, int stages) {
  const LinkProfile& link = profile.link;
  const int replicas = deck.parallel.data;
  std::vector<double> seconds(static_cast<std::size_t>(stages), 0);
  if (replicas == 1 || !(link.one_way > 0)) return seconds;
  if (link.bytes_per_s > 0) seconds = planned_exchange(deck, stages);
  for (double& stage : seconds) {
    if (stage > 0) stage /= link.bytes_per_s;
    stage += 2 * (replicas - 1) * link.latency;
  }
  return seconds;
}

schedules::Costs profiled_costs(const Profile& profile, const Deck& deck, int stages) {
  const RankProfile times = profile.mean();
  const auto placement = schedules::placement_for(schedule_options(deck, stages));
  const auto layers = stage_layers(deck, stages);
  const auto exchange = exchange_seconds(profile, deck, stages);
  schedules::Costs costs;
  for (int stage = 0; stage < stages; ++stage) {
    const KokkosStageOptions options = stage_options(deck, layers, stage);
    const LayerCounts mine = count_layers(options.model, layers[stage]);
    double forward = stage_seconds(times.forward, mine, Receives::activation);
    double input = stage_seconds(times.backward_input, mine, Receives::gradient);
    double weight = stage_seconds(times.backward_weight, mine, Receives::nothing);
    if (!options.split_backward && input + weight > 0) {
      const double whole = stage_seconds(times.backward, mine, Receives::gradient);
      input *= whole / (input + weight);
      weight = whole - input;
    }
    const auto same_rank = [&](int other) { return placement.rank_of(stage) == placement.rank_of(other); };
    if (stage > 0) {
      forward += same_rank(stage - 1) ? times.message_copy : profile.link.receive;
      input += same_rank(stage - 1) ? 0 : profile.link.send;
    }
    if (stage + 1 < stages) {
      input += same_rank(stage + 1) ? times.message_copy : profile.link.receive;
      forward += same_rank(stage + 1) ? 0 : profile.link.send;
    }
    costs.forward.push_back(forward);
    costs.backward_input.push_back(input);
    costs.backward_weight.push_back(weight);
    costs.update.push_back(exchange[stage] + stage_seconds(times.update, mine, Receives::nothing) +
                           version_seconds(times, options) * static_cast<double>(profile.parameters(mine)));
  }
  costs.latency = profile.link.transfer();
  return costs;
}

SteadyPrediction predict_steady(const Deck& deck, int stages, const schedules::Costs& costs) {
  auto options = schedule_options(deck, stages);
  options.synchronous_updates = 0;
  const auto step = schedules::steady_step(options, costs, "lower train.microbatches or the number of stages");
  SteadyPrediction result;
  if (!(step.time > 0)) return result;
  result.step_time = step.time;
  result.tokens_per_s = static_cast<double>(tokens_per_update(deck)) / result.step_time;
  result.bubble_share = 1 - step.busy_share;
  return result;
}

std::vector<std::uint64_t> planned_peak_bytes(const Deck& deck, int stages) {
  std::vector<std::uint64_t> bytes;
  for (const PlannedMemory& rank : planned_memory_by_rank(deck, stages)) bytes.push_back(rank.total());
  return bytes;
}

}  // namespace minipipe::core
