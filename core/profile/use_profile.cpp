#include "core/profile/use_profile.hpp"

#include <algorithm>
#include <numeric>

#include "core/model/flops.hpp"
#include "core/model/replica_layout.hpp"
#include "core/train/options.hpp"
#include "core/train/planned_traffic.hpp"
#include "core/train/preflight.hpp"
#include "core/train/replica_options.hpp"
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

// What a replica does of a whole stage's work, the one that has most to do of each kind.
struct StageShares {
  BlockProducts blocks = {0, 0};
  double update = 0;  // of the parameters
};

StageShares shares_of(const KokkosStageOptions& options) {
  const ReplicaMode mode = options.replication.mode;
  if (mode == ReplicaMode::ddp) return {{}, 1};
  StageShares most;
  // Without masks replicas are alike.
  const int replicas = mode == ReplicaMode::sdp ? options.replication.replicas : 1;
  ReplicaLayout layout(options.model, options.layers, options.replication);
  for (int replica = 0; replica < replicas; ++replica) {
    layout.move_to(replica);
    const BlockProducts blocks = held_products(options.model, options.shape, options.layers, layout.options);
    most.blocks.computed = std::max(most.blocks.computed, blocks.computed);
    most.blocks.trained = std::max(most.blocks.trained, blocks.trained);
    const auto& floats = layout.full_layer_floats;
    const auto all = std::accumulate(floats.begin(), floats.end(), std::int64_t{0});
    most.update = std::max(most.update, static_cast<double>(layout.moment_floats) / static_cast<double>(all));
  }
  return most;
}

// Of a stage that does so much of its blocks' work, and all of the ends'.
double shared_seconds(const LayerTimes& times, const LayerCounts& layers, Receives receives, double of_blocks) {
  LayerCounts ends_alone = layers;
  ends_alone.layers = {};
  const double all = stage_seconds(times, layers, receives);
  return all - (1 - of_blocks) * (all - stage_seconds(times, ends_alone, receives));
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
    const StageShares shares = shares_of(options);
    double forward = shared_seconds(times.forward, mine, Receives::activation, shares.blocks.computed);
    double input = shared_seconds(times.backward_input, mine, Receives::gradient, shares.blocks.computed);
    double weight = shared_seconds(times.backward_weight, mine, Receives::nothing, shares.blocks.trained);
    const double halves = stage_seconds(times.backward_input, mine, Receives::gradient) +
                          stage_seconds(times.backward_weight, mine, Receives::nothing);
    if (!options.split_backward && halves > 0) {
      const double together = stage_seconds(times.backward, mine, Receives::gradient) / halves;
      input *= together;
      weight *= together;
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
    costs.update.push_back(exchange[stage] + shares.update * stage_seconds(times.update, mine, Receives::nothing) +
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
