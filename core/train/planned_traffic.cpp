#include "core/train/planned_traffic.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "core/model/fetch_order.hpp"
#include "core/parallel/exchange_plans.hpp"
#include "core/parallel/gathered_layers.hpp"
#include "core/parallel/stream_link.hpp"
#include "core/train/options.hpp"
#include "core/train/preflight.hpp"
#include "core/train/sent_bytes.hpp"
#include "core/train/stage_replicas.hpp"

namespace minipipe::core {

namespace {

using schedules::Kind;

double bytes(std::int64_t floats) { return static_cast<double>(floats) * sizeof(float); }

// How often each layer of a stage is gathered per update.
class Gathers {
 public:
  explicit Gathers(const StageLayers& layers)
      : forward_(forward_fetch_order(layers, false)),  // weights that are gathered are not tied (check_replication)
        backward_(backward_fetch_order(layers, false)),
        counts_(static_cast<std::size_t>(StageLayerNumbers::count(layers)), 0) {}

  void see(Kind kind) {
    if (kind == Kind::forward) pass(forward_);
    if (kind == Kind::backward || kind == Kind::backward_input) pass(backward_);
    if (kind == Kind::update) gathered_.forget();
  }

  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  void pass(const std::vector<int>& order) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const int next = i + 1 < order.size() ? order[i + 1] : -1;
      gathered_.fetch(order[i], next, [this](int layer, int /*replaced*/) { ++counts_[static_cast<std::size_t>(layer)]; });
    }
  }

  std::vector<int> forward_;
  std::vector<int> backward_;
  std::vector<std::int64_t> counts_;
  GatheredLayers gathered_;
};

// By stage and layer; empty if no weights are gathered for passes.
std::vector<std::vector<double>> gathers_per_update(const Deck& deck, const std::vector<StageLayers>& layers) {
  const int stages = static_cast<int>(layers.size());
  if (deck.parallel.data == 1 || !stage_options(deck, layers, 0).replication.sharded()) return {};
  const Preflight order = preflight(deck, stages);
  std::vector<Gathers> gathers;
  for (const StageLayers& stage : layers) gathers.emplace_back(stage);
  for (const auto& rank : order.simulation.log.ranks) {
    for (const auto& entry : rank) gathers[static_cast<std::size_t>(entry.action.stage)].see(entry.action.kind);
  }
  std::vector<std::vector<double>> result;
  for (const Gathers& stage : gathers) {
    result.emplace_back();
    for (const std::int64_t count : stage.counts()) {
      result.back().push_back(static_cast<double>(count) / static_cast<double>(order.updates));
    }
  }
  return result;
}

struct Sent {
  std::array<double, traffic_purposes> replicas{};
  double pipeline = 0;
  double& operator[](TrafficPurpose purpose) { return replicas[static_cast<std::size_t>(purpose)]; }
};

// To the other replicas of a stage. `gathers`: per update, by layer.
void add_exchange(Sent& sent, StageReplicas& replicas, std::int64_t updates, const std::vector<double>& gathers) {
  const KokkosStageOptions& options = replicas.options();
  const ReplicaOptions& replication = options.replication;
  const ExchangeSizes sizes = replicas.exchange();
  const auto share_of_updates = [updates](std::int64_t period) {
    return period > 0 ? static_cast<double>(updates / period) / static_cast<double>(updates) : 0.0;
  };
  const double sums = reduces_layer_buffers(replication) ? static_cast<double>(options.window) : 1.0;
  sent[TrafficPurpose::reduce_scatter] += sums * bytes(sizes.scattered);
  sent[TrafficPurpose::all_gather] += sums * bytes(sizes.returned);
  sent[TrafficPurpose::average] += share_of_updates(replication.average_period) * bytes(sizes.averaged);
  if (replication.sdp()) {
    sent[TrafficPurpose::refresh] += share_of_updates(replication.refresh_period) * bytes(sizes.weights);
  } else {
    sent[TrafficPurpose::parameter_gather] += bytes(sizes.weights);
  }
  for (std::size_t layer = 0; layer < gathers.size(); ++layer) {
    sent[TrafficPurpose::parameter_gather] += gathers[layer] * bytes(sizes.layers[layer]);
  }
  if (options.clip == Clip::stage) {
    sent[TrafficPurpose::norm] +=
        static_cast<double>(replicas.layout().full.size() * sizeof(double) * (replication.replicas - 1));
  }
}

// visit(stage, replica, the replicas of the stage, moved there, gathers by layer), by stage and replica.
template <class Visit>
void for_stage_replicas(const Deck& deck, int stages, const Visit& visit) {
  if (deck.parallel.data == 1 || deck.emulate.enabled) return;
  const auto layers = stage_layers(deck, stages);
  const auto gathers = gathers_per_update(deck, layers);
  const ExchangeMemory memory = exchange_memory(deck.parallel.transport);
  for (int stage = 0; stage < stages; ++stage) {
    StageReplicas replicas(stage_options(deck, layers, stage), memory);
    for (int replica = 0; replica < deck.parallel.data; ++replica) {
      replicas.move_to(replica);
      visit(stage, replica, replicas, gathers.empty() ? std::vector<double>() : gathers[stage]);
    }
  }
}

PlannedTraffic by_purpose(const Sent& sent) {
  PlannedTraffic result;
  // The names and their order.
  for (const auto& [name, none] : SentBytes().purposes()) {
    const auto purpose = std::find(traffic_names.begin(), traffic_names.end(), name);
    result.emplace_back(name, purpose == traffic_names.end() ? sent.pipeline : sent.replicas[purpose - traffic_names.begin()]);
  }
  return result;
}

}  // namespace

std::vector<PlannedTraffic> planned_traffic(const Deck& deck, int stages) {
  const auto placement = schedules::placement_for(schedule_options(deck, stages));
  std::vector<Sent> ranks(static_cast<std::size_t>(placement.ranks) * deck.parallel.data);
  const auto rank_of = [&](int replica, int stage) -> Sent& {
    return ranks[replica * placement.ranks + placement.rank_of(stage)];
  };
  const double message = bytes(message_floats(deck));
  for (int stage = 0; stage < stages; ++stage) {
    for (const int neighbour : {stage - 1, stage + 1}) {
      if (neighbour < 0 || neighbour >= stages || placement.rank_of(neighbour) == placement.rank_of(stage)) continue;
      for (int replica = 0; replica < deck.parallel.data; ++replica) {
        rank_of(replica, stage).pipeline += static_cast<double>(deck.train.microbatches) * message;
      }
    }
  }
  for_stage_replicas(deck, stages, [&](int stage, int replica, StageReplicas& replicas, const std::vector<double>& gathers) {
    add_exchange(rank_of(replica, stage), replicas, deck.run.steps, gathers);
  });
  std::vector<PlannedTraffic> result;
  for (const Sent& sent : ranks) result.push_back(by_purpose(sent));
  return result;
}

std::vector<double> planned_exchange(const Deck& deck, int stages) {
  std::vector<double> most(static_cast<std::size_t>(stages), 0);
  for_stage_replicas(deck, stages,
                     [&](int stage, int /*replica*/, StageReplicas& replicas, const std::vector<double>& gathers) {
                       Sent sent;
                       add_exchange(sent, replicas, deck.run.steps, gathers);
                       most[stage] = std::max(most[stage], std::accumulate(sent.replicas.begin(), sent.replicas.end(), 0.0));
                     });
  return most;
}

double most_exchanged(const std::vector<PlannedTraffic>& ranks) {
  double most = 0;
  for (const PlannedTraffic& rank : ranks) {
    double bytes = 0;
    for (const auto& [purpose, sent] : rank) {
      if (purpose != "pipeline") bytes += sent;
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace minipipe::core
