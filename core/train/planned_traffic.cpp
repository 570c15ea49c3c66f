#include "core/train/planned_traffic.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "core/model/fetch_order.hpp"
#include "core/parallel/exchange_plans.hpp"
#include "core/parallel/gathered_layers.hpp"
#include "core/train/options.hpp"
#include "core/train/preflight.hpp"
#include "core/train/sent_bytes.hpp"

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
  std::vector<std::vector<double>> result;
  for (int stage = 0; stage < stages; ++stage) {
    Gathers gathers(layers[stage]);
    for (const auto& rank : order.simulation.log.ranks) {
      for (const auto& entry : rank) {
        if (entry.action.stage == stage) gathers.see(entry.action.kind);
      }
    }
    result.emplace_back();
    for (const std::int64_t count : gathers.counts()) {
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

// A sum over holders: what this replica sends for it, and what it sends of its result.
void add_sum(Sent& sent, const ReducePlan& plan, double times, TrafficPurpose scatter, TrafficPurpose gather) {
  for (int h = 0; h < static_cast<int>(plan.holders.size()); ++h) {
    if (h == plan.number) continue;
    sent[scatter] += times * bytes(plan.parts[static_cast<std::size_t>(h)].floats);
    if (plan.all) sent[gather] += times * bytes(plan.parts[static_cast<std::size_t>(plan.number)].floats);
  }
}

double sent_for(const GatherPlan& plan) { return bytes(plan.source.floats) * static_cast<double>(plan.peers.size()); }

// To the other replicas of a stage. `gathers`: per update, by layer.
void add_exchange(Sent& sent, const KokkosStageOptions& options, std::int64_t updates, const std::vector<double>& gathers) {
  const ReplicaOptions& replication = options.replication;
  const ReplicaLayout layout(options.model, options.layers, replication);
  const ExchangePlans plans{ExchangeLayout(layout)};
  const auto share_of_updates = [updates](std::int64_t period) {
    return period > 0 ? static_cast<double>(updates / period) / static_cast<double>(updates) : 0.0;
  };
  const double sums = reduces_layer_buffers(replication) ? static_cast<double>(options.window) : 1.0;
  for (const auto& parts : plans.gradients) {
    for (const ReducePlan& plan : parts) {
      add_sum(sent, plan, sums, TrafficPurpose::reduce_scatter, TrafficPurpose::all_gather);
    }
  }
  for (const ReducePlan& plan : plans.averages) {
    add_sum(sent, plan, share_of_updates(replication.average_period), TrafficPurpose::average, TrafficPurpose::average);
  }
  for (const GatherPlan& plan : plans.weights) {
    if (replication.sdp()) {
      sent[TrafficPurpose::refresh] += share_of_updates(replication.refresh_period) * sent_for(plan);
    } else {
      sent[TrafficPurpose::parameter_gather] += sent_for(plan);
    }
  }
  for (std::size_t layer = 0; layer < gathers.size(); ++layer) {
    for (const GatherPlan& plan : plans.layers[layer]) {
      sent[TrafficPurpose::parameter_gather] += gathers[layer] * sent_for(plan);
    }
  }
  if (options.clip == Clip::stage) {
    sent[TrafficPurpose::norm] += static_cast<double>(layout.full.size() * sizeof(double) * (replication.replicas - 1));
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
  const auto layers = deck.emulate.enabled ? std::vector<StageLayers>() : stage_layers(deck, stages);
  const auto gathers = deck.emulate.enabled ? std::vector<std::vector<double>>() : gathers_per_update(deck, layers);
  std::vector<Sent> ranks(static_cast<std::size_t>(placement.ranks) * deck.parallel.data);
  for (int replica = 0; replica < deck.parallel.data; ++replica) {
    for (int stage = 0; stage < stages; ++stage) {
      Sent& sent = ranks[replica * placement.ranks + placement.rank_of(stage)];
      for (const int neighbour : {stage - 1, stage + 1}) {
        if (neighbour < 0 || neighbour >= stages || placement.rank_of(neighbour) == placement.rank_of(stage)) continue;
        sent.pipeline += static_cast<double>(deck.train.microbatches) * bytes(message_floats(deck));
      }
      if (deck.parallel.data == 1 || deck.emulate.enabled) continue;
      add_exchange(sent, stage_options(deck, layers, stage, replica), deck.run.steps,
                   gathers.empty() ? std::vector<double>() : gathers[stage]);
    }
  }
  std::vector<PlannedTraffic> result;
  for (const Sent& sent : ranks) result.push_back(by_purpose(sent));
  return result;
}

std::vector<double> planned_exchange(const Deck& deck, int stages) {
  std::vector<double> most(static_cast<std::size_t>(stages), 0);
  if (deck.parallel.data == 1 || deck.emulate.enabled) return most;
  const auto layers = stage_layers(deck, stages);
  const auto gathers = gathers_per_update(deck, layers);
  for (int replica = 0; replica < deck.parallel.data; ++replica) {
    for (int stage = 0; stage < stages; ++stage) {
      Sent sent;
      add_exchange(sent, stage_options(deck, layers, stage, replica), deck.run.steps,
                   gathers.empty() ? std::vector<double>() : gathers[stage]);
      most[stage] = std::max(most[stage], std::accumulate(sent.replicas.begin(), sent.replicas.end(), 0.0));
    }
  }
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
