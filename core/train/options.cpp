#include "core/train/options.hpp"

#include <algorithm>

#include "core/deck/emulated_times.hpp"
#include "core/deck/rules.hpp"
#include "core/train/link_delay.hpp"
#include "core/train/replica_options.hpp"
#include "schedules/generate/planned_update.hpp"

namespace minipipe::core {

std::int64_t most_extra_in_flight(const Deck& deck) {
  std::int64_t updates = deck.run.steps;
  for (const std::int64_t interval : {deck.checkpoint.interval, deck.output.evaluation_interval}) {
    if (interval > 0) updates = std::min(updates, interval);
  }
  return updates * deck.train.microbatches - 1;
}

Deck effective_deck(Deck deck) {
  schedules::ScheduleOptions options;
  options.name = deck.schedule.name;
  options.window = deck.train.microbatches;
  deck.train.microbatches = schedules::effective_window(options);
  return deck;
}

schedules::ScheduleOptions schedule_options(const Deck& deck, int stages) {
  schedules::ScheduleOptions options;
  options.name = deck.schedule.name;
  options.stages = stages;
  options.window = deck.train.microbatches;
  options.order = deck.schedule.order == "fixed" ? schedules::Order::fixed : schedules::Order::dynamic;
  options.ready = deck.schedule.ready == "backward_first" ? schedules::Ready::backward_first : schedules::Ready::alternate;
  options.extra_in_flight = static_cast<int>(std::min<std::int64_t>(deck.schedule.extra_in_flight, most_extra_in_flight(deck)));
  options.synchronous_updates = deck.schedule.synchronous_updates;
  options.chunks = chunks_of(deck);
  options.memory_limit = deck.schedule.memory_limit;
  options.plan_file = deck.schedule.plan;
  if (deck.emulate.enabled) {
    options.costs = {deck.emulate.forward_ms, 0.5 * deck.emulate.backward_ms, 0.5 * deck.emulate.backward_ms};
  }
  return options;
}

schedules::Placement placement_of_run(const Deck& deck, int ranks) {
  const auto options = schedule_options(deck, stages_of(deck, ranks));
  const int pipeline_ranks = ranks / deck.parallel.data;
  return pipeline_ranks == 1 ? schedules::placement_for(options) : schedules::placement_for(options, pipeline_ranks);
}

Place place_of_run(const Deck& deck, int rank, int ranks) {
  return {.rank = rank, .ranks = ranks, .replicas = deck.parallel.data, .placement = placement_of_run(deck, ranks)};
}

ModelConfig model_config(const Deck& deck) {
  return {.family = deck.model.family,
          .layers = deck.model.layers,
          .width = deck.model.width,
          .heads = deck.model.heads,
          .vocab = deck.model.vocab,
          .context = deck.model.context,
          .tied = deck.model.tied,
          .dropout = deck.model.dropout,
          .kv_heads = deck.model.kv_heads,
          .hidden = deck.model.hidden,
          .pattern = deck.model.pattern,
          .experts = deck.model.experts,
          .expert_choices = deck.model.expert_choices,
          .expert_hidden = deck.model.expert_hidden,
          .expert_capacity = deck.model.expert_capacity,
          .balance_loss = deck.model.balance_loss,
          .state_size = deck.model.state_size,
          .state_head_size = deck.model.state_head_size,
          .state_groups = deck.model.state_groups,
          .state_expand = deck.model.state_expand,
          .conv_width = deck.model.conv_width};
}

TrainShape train_shape(const Deck& deck) {
  return {.microbatch_size = deck.train.microbatch_size, .sequence = deck.train.sequence};
}

Precision precision_of(const Deck& deck) { return deck.precision.compute == "bf16" ? Precision::bf16 : Precision::fp32; }

std::vector<StageLayers> stage_layers(const Deck& deck, int stages) {
  return partition_model(model_config(deck), deck.train.sequence, stages, deck.schedule.partition);
}

KokkosStageOptions stage_options(const Deck& deck, const std::vector<StageLayers>& layers, int stage, int replica) {
  const int stages = static_cast<int>(layers.size());
  const auto schedule = schedule_options(deck, stages);
  KokkosStageOptions options;
  options.model = model_config(deck);
  options.shape = train_shape(deck);
  options.layers = layers[stage];
  options.stage = stage;
  options.stages = stages;
  options.replication = replica_options(deck, layers[stage], replica);
  options.precision = precision_of(deck);
  options.seed = static_cast<std::uint64_t>(deck.run.seed);
  options.activation_slots = schedules::activation_slots(schedule, stage);
  options.window = deck.train.microbatches;
  options.adamw.beta1 = deck.train.beta1;
  options.adamw.beta2 = deck.train.beta2;
  options.adamw.epsilon = deck.train.epsilon;
  options.adamw.weight_decay = deck.train.weight_decay;
  options.learning_rate = {.peak = deck.train.learning_rate,
                           .minimum = deck.train.min_learning_rate,
                           .warmup_steps = deck.train.warmup_steps,
                           .total_steps = deck.run.steps};
  options.optimizer = deck.train.optimizer == "muon"    ? OptimizerKind::muon
                      : deck.train.optimizer == "nadam" ? OptimizerKind::nadam
                                                        : OptimizerKind::adamw;
  options.muon.learning_rate = deck.train.muon_learning_rate;
  options.muon.momentum = deck.train.muon_momentum;
  options.clip_norm = deck.train.clip_norm;
  options.synchronous_updates = deck.schedule.synchronous_updates;
  options.weight_rule = schedules::weight_rule(schedule.name);
  options.weight_copies = static_cast<int>(schedules::weight_copies(schedule, stage));
  options.split_backward = schedules::is_planned(schedule.name) && schedules::planned_update(schedule)->splits_backward;
  options.recompute = deck.train.recompute == "block"       ? Recompute::block
                      : deck.train.recompute == "attention" ? Recompute::attention
                                                            : Recompute::none;
  options.pipemare.annealing_steps = deck.schedule.annealing_steps;
  options.clip = deck.train.clip == "global" ? Clip::global : deck.train.clip == "stage" ? Clip::stage : Clip::none;
  return options;
}

int edge_slots(const Deck& deck, int stages, int stage) {
  return static_cast<int>(schedules::activation_slots(schedule_options(deck, stages), stage));
}

std::int64_t message_floats(const Deck& deck) {
  constexpr std::int64_t line = 16;
  const std::int64_t floats = deck.emulate.enabled ? deck.emulate.message_bytes / static_cast<std::int64_t>(sizeof(float))
                                                   : message_floats(model_config(deck), train_shape(deck), precision_of(deck));
  return std::max<std::int64_t>(1, (floats + line - 1) / line) * line;
}

schedules::Costs emulated_costs(const Deck& deck, int stages) {
  schedules::Costs costs;
  for (int stage = 0; stage < stages; ++stage) {
    const EmulatedTimes times = emulated_times(deck, stage);
    costs.forward.push_back(1e-3 * times.forward);
    costs.backward_input.push_back(1e-3 * times.input);
    costs.backward_weight.push_back(1e-3 * times.weight);
    costs.update.push_back(1e-3 * times.update);
  }
  for (int stage = 0; stage + 1 < stages; ++stage) {
    costs.latencies.push_back(link_delay_s(deck, stage));
    costs.latency = std::max(costs.latency, costs.latencies.back());
  }
  return costs;
}

std::int64_t microbatches_per_update(const Deck& deck) { return deck.train.microbatches * deck.parallel.data; }

std::int64_t tokens_per_update(const Deck& deck) {
  return microbatches_per_update(deck) * deck.train.microbatch_size * deck.train.sequence;
}

}  // namespace minipipe::core
