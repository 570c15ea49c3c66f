#include "core/tune/scaled_profile.hpp"

#include "schedules/error.hpp"
#include "schedules/simulate/steady_step.hpp"

namespace minipipe::core {
namespace {

double ratio(double wanted, double measured, const std::string& key, const std::string& profile) {
  if (wanted == 0 || wanted == measured) return 1;
  if (!(wanted > 0)) throw InputError("--" + key + ": must be above 0");
  if (measured > 0) return wanted / measured;
  throw InputError("profile " + profile + ": does not say the " + key + " its times were measured at, so --" + key +
                   " cannot be followed; add \"" + key + "\"");
}

schedules::LayerCosts times(schedules::LayerCosts costs, double time, double activations, double parameters) {
  for (double* value : {&costs.forward, &costs.backward_input, &costs.backward_weight}) *value *= time;
  costs.activation_bytes *= activations;
  costs.parameter_bytes *= parameters;
  costs.gradient_bytes *= parameters;
  return costs;
}

}  // namespace

ProfileFile scaled(const ProfileFile& file, const ProfileSize& size) {
  ProfileFile result = file;
  schedules::CostProfile& profile = result.profile;
  ProfileGrowth& growth = result.growth;
  const double w = ratio(size.width, growth.width, "width", profile.name);
  const double t = ratio(size.sequence, growth.sequence, "sequence", profile.name);
  if (size.layers < 0) throw InputError("--layers " + std::to_string(size.layers) + ": must be at least 1");
  const auto layers = static_cast<std::size_t>(size.layers > 0 ? size.layers : profile.size());
  const std::size_t listed = profile.layers.size();
  profile.layers.clear();
  growth.attention_share.clear();
  std::string pattern;
  for (std::size_t i = 0; i < layers; ++i) {
    const double share = i % listed < file.growth.attention_share.size() ? file.growth.attention_share[i % listed] : 0;
    const double linear = (1 - share) * w * w * t;
    const double square = share * w * t * t;
    profile.layers.push_back(times(file.profile.layers[i % listed], linear + square, w * t, w * w));
    growth.attention_share.push_back(linear + square > 0 ? square / (linear + square) : 0);
    if (!file.profile.pattern.empty()) pattern += file.profile.pattern[i % listed];
  }
  profile.pattern = pattern;
  profile.embedding = times(profile.embedding, w * t, w * t, w);
  profile.head = times(profile.head, w * t, w * t, w);
  growth.transfer_ms *= w * t;
  growth.width *= w;
  growth.sequence *= t;
  profile.link = growth.latency_ms + growth.transfer_ms;
  return result;
}

schedules::Costs stage_costs(const ProfileFile& file, const std::vector<int>& partition, int replicas) {
  if (replicas < 1) throw InputError("--replicas " + std::to_string(replicas) + ": must be at least 1");
  schedules::Costs costs;
  for (const schedules::LayerCosts& stage : schedules::CostSums(file.profile).stages(partition)) {
    costs.forward.push_back(stage.forward);
    costs.backward_input.push_back(stage.backward_input);
    costs.backward_weight.push_back(stage.backward_weight);
    const double bytes_per_ms = 1e6 * file.growth.exchange_gb_per_s;
    const bool free = !(bytes_per_ms > 0);
    costs.update.push_back(
        free ? 0 : schedules::ring_all_reduce(stage.gradient_bytes, replicas, bytes_per_ms, file.growth.exchange_latency_ms));
  }
  costs.latency = file.profile.link;
  return costs;
}

}  // namespace minipipe::core
