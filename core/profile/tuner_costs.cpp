#include "core/profile/tuner_costs.hpp"

namespace minipipe::core {

namespace {

constexpr double milliseconds = 1e3;

// Seconds of one type of layer.
struct Seconds {
  double forward, backward, backward_input, backward_weight;
};

Seconds of_kind(const RankProfile& times, LayerKind kind) {
  return {times.forward.of(kind), times.backward.of(kind), times.backward_input.of(kind), times.backward_weight.of(kind)};
}

Seconds of_end(const RankProfile& times, double LayerTimes::*end) {
  return {times.forward.*end, times.backward.*end, times.backward_input.*end, times.backward_weight.*end};
}

schedules::LayerCosts layer_costs(const Seconds& seconds, const LayerBytes& bytes, bool split, double units) {
  double input = seconds.backward_input;
  double weight = seconds.backward_weight;
  if (const double halves = input + weight; !split && halves > 0) {
    input *= seconds.backward / halves;
    weight = seconds.backward - input;
  }
  schedules::LayerCosts costs;
  costs.forward = milliseconds * seconds.forward;
  costs.backward_input = milliseconds * input;
  costs.backward_weight = milliseconds * weight;
  costs.units = units;
  costs.activation_bytes = static_cast<double>(bytes.activations);
  // Weights, gradients and two moments of the optimizer.
  costs.parameter_bytes = 4.0 * sizeof(float) * static_cast<double>(bytes.parameters);
  return costs;
}

}  // namespace

schedules::CostProfile tuner_costs(const Profile& profile, const ModelConfig& model, bool split) {
  const RankProfile times = profile.mean();
  schedules::CostProfile costs;
  costs.pattern = model.pattern.empty() ? std::string(static_cast<std::size_t>(model.layers), 'T') : model.pattern;
  for (int block = 0; block < model.layers; ++block) {
    const LayerKind kind = layer_kind(model, block);
    costs.layers.push_back(layer_costs(of_kind(times, kind), profile.of(kind), split, 1));
  }
  costs.embedding = layer_costs(of_end(times, &LayerTimes::embedding), profile.embedding, split, 0);
  costs.head = layer_costs(of_end(times, &LayerTimes::head), profile.head, split, 0);
  const double copy = 0.5 * (times.forward.received + (split ? times.backward_input : times.backward).received);
  costs.link = milliseconds * (profile.link.one_way + copy);
  return costs;
}

double tuner_update(const Profile& profile, const ModelConfig& model, int devices) {
  return milliseconds * stage_seconds(profile.mean().update, count_layers(model), Receives::nothing) / devices;
}

std::string tuner_machine(const Profile& profile) {
  return profile.machine.hosts.find(',') == std::string::npos ? profile.machine.hosts : "";
}

}  // namespace minipipe::core
