#include "core/profile/probe_stages.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/profile/layer_times.hpp"

namespace minipipe::core {

namespace {

using Shares = std::array<double, layer_kinds>;

double dot(const Shares& a, const Shares& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

struct Candidate {
  StageLayers layers;
  Shares left;  // shares of the kinds in the run's cost, without what the chosen runs tell already
};

// Runs of half to all of `longest` layers, one for each mix of kinds.
std::vector<Candidate> candidates(const ModelConfig& model, int longest) {
  const std::vector<double> costs = layer_costs(model, model.context).blocks;
  std::vector<Candidate> result;
  std::vector<LayerCounts> seen;
  for (int length = longest; length >= (longest + 1) / 2; --length) {
    for (int first = 0; first + length <= model.layers; ++first) {
      const StageLayers layers{false, first, length, false};
      const LayerCounts counts = count_layers(model, layers);
      if (std::find(seen.begin(), seen.end(), counts) != seen.end()) continue;
      seen.push_back(counts);
      Shares shares{};
      double sum = 0;
      for (int b = first; b < first + length; ++b) {
        shares[static_cast<std::size_t>(layer_kind(model, b))] += costs[b];
        sum += costs[b];
      }
      for (double& share : shares) share /= sum;
      result.push_back({layers, shares});
    }
  }
  return result;
}

// The runs with the most different mixes, at most as many as there are kinds.
std::vector<StageLayers> different_runs(const ModelConfig& model, int longest) {
  constexpr double same = 0.02;  // shares that differ by less tell nothing beside the noise of timings
  std::vector<Candidate> all = candidates(model, longest);
  std::vector<StageLayers> chosen;
  while (chosen.size() < layer_kinds) {
    const auto next = std::max_element(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
      return dot(a.left, a.left) < dot(b.left, b.left);
    });
    const double norm = std::sqrt(dot(next->left, next->left));
    if (norm < same) break;
    chosen.push_back(next->layers);
    Shares direction = next->left;
    for (double& value : direction) value /= norm;
    for (Candidate& candidate : all) {
      const double along = dot(candidate.left, direction);
      for (int k = 0; k < layer_kinds; ++k) candidate.left[k] -= along * direction[k];
    }
  }
  return chosen;
}

std::vector<ProbeStage> of_blocks(const ModelConfig& model, int longest) {
  std::vector<ProbeStage> stages;
  for (const int b : {1, longest}) {
    const bool large = b == longest;
    stages.push_back({{true, 0, b, true}, large});
    if (model.tied) continue;
    stages.push_back({{true, 0, b, false}, large});
    stages.push_back({{false, 0, b, false}, large});
    stages.push_back({{false, 0, b, true}, large});
  }
  return stages;
}

}  // namespace

ModelConfig with_layers(ModelConfig model, int layers) {
  model.layers = std::max(model.layers, layers);
  if (!model.pattern.empty()) model.pattern.resize(static_cast<std::size_t>(model.layers), model.pattern.back());
  return model;
}

std::size_t probe_of_turn(std::size_t turn, std::size_t probes, int round, int rounds, int rank) {
  const std::size_t shift = 1 + static_cast<std::size_t>(round) * probes / static_cast<std::size_t>(rounds);
  return (turn + static_cast<std::size_t>(rank) * shift) % probes;
}

std::vector<ProbeStage> probe_stages(const ModelConfig& model_of_run, int longest) {
  longest = std::max(2, longest);
  if (model_of_run.pattern.empty()) return of_blocks(model_of_run, longest);
  const ModelConfig model = with_layers(model_of_run, longest);
  std::vector<ProbeStage> stages;
  const auto add = [&](bool embedding, int first, int blocks, bool head, bool large) {
    stages.push_back({{embedding || model.tied, first, blocks, head || model.tied}, large});
  };
  for (int k = 0; k < layer_kinds; ++k) {
    for (int b = 0; b < model.layers; ++b) {
      if (layer_kind(model, b) != static_cast<LayerKind>(k)) continue;
      add(false, b, 1, false, false);
      break;
    }
  }
  if (!model.tied) {
    add(true, 0, 1, false, false);
    add(false, model.layers - 1, 1, true, false);
  }
  for (const StageLayers& run : different_runs(model, longest)) add(false, run.first_block, run.blocks, false, true);
  if (!model.tied) add(true, 0, longest, false, true);
  add(false, model.layers - longest, longest, true, true);
  return stages;
}

}  // namespace minipipe::core
