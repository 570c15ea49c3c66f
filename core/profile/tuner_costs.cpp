#include "core/profile/tuner_costs.hpp"

namespace minipipe::core {

namespace {

constexpr double milliseconds = 1e3;

schedules::LayerCosts layer_costs(const RankProfile& times, double LayerTimes::*layer, bool split, double units) {
  double input = times.backward_input.*layer;
  double weight = times.backward_weight.*layer;
  if (const double halves = input + weight; !split && halves > 0) {
    const double whole = times.backward.*layer;
    input *= whole / halves;
    weight = whole - input;
  }
  schedules::LayerCosts costs;
  costs.forward = milliseconds * times.forward.*layer;
  costs.backward_input = milliseconds * input;
  costs.backward_weight = milliseconds * weight;
  costs.units = units;
  return costs;
}

}  // namespace

schedules::CostProfile tuner_costs(const Profile& profile, int layers, bool split) {
  const RankProfile times = profile.mean();
  schedules::CostProfile costs;
  costs.pattern = std::string(static_cast<std::size_t>(layers), 'T');
  costs.layers.assign(static_cast<std::size_t>(layers), layer_costs(times, &LayerTimes::block, split, 1));
  costs.embedding = layer_costs(times, &LayerTimes::embedding, split, 0);
  costs.head = layer_costs(times, &LayerTimes::head, split, 0);
  const double copy = 0.5 * (times.forward.received + (split ? times.backward_input : times.backward).received);
  costs.link = milliseconds * (profile.link.one_way + copy);
  return costs;
}

double tuner_update(const Profile& profile, int layers, int devices) {
  const LayerTimes update = profile.mean().update;
  return milliseconds * (update.embedding + layers * update.block + update.head) / devices;
}

std::string tuner_machine(const Profile& profile) {
  return profile.machine.hosts.find(',') == std::string::npos ? profile.machine.hosts : "";
}

}  // namespace minipipe::core
