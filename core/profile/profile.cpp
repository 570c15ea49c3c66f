#include "core/profile/profile.hpp"

#include <algorithm>
#include <array>
#include <sstream>

#include "core/model/model_config.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

constexpr std::array layer_members{&RankProfile::forward, &RankProfile::backward, &RankProfile::backward_input,
                                   &RankProfile::backward_weight, &RankProfile::update};
constexpr std::array ends{&LayerTimes::embedding, &LayerTimes::head, &LayerTimes::received};
constexpr std::array numbers{&RankProfile::weight_copy, &RankProfile::weight_correct, &RankProfile::message_copy};

std::string number_text(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

ModelFingerprint model_fingerprint(const Deck& deck) {
  const ModelConfig model = model_config(deck);
  ModelFingerprint result = {{"model.family", deck.model.family},
                             {"model.width", std::to_string(deck.model.width)},
                             {"model.heads", std::to_string(deck.model.heads)},
                             {"model.kv_heads", std::to_string(kv_heads(model))},
                             {"model.hidden", std::to_string(hidden_width(model))},
                             {"model.vocab", std::to_string(deck.model.vocab)},
                             {"model.context", std::to_string(deck.model.context)},
                             {"model.tied", deck.model.tied ? "true" : "false"},
                             {"model.dropout", deck.model.dropout > 0 ? "above 0" : "0"},
                             {"train.sequence", std::to_string(deck.train.sequence)},
                             {"train.microbatch_size", std::to_string(deck.train.microbatch_size)},
                             {"train.optimizer", deck.train.optimizer},
                             {"train.recompute", deck.train.recompute},
                             {"precision.compute", deck.precision.compute}};
  const LayerCounts counts = count_layers(model);
  if (counts.of(LayerKind::experts) > 0) {
    result["model.experts"] = std::to_string(model.experts);
    result["model.expert_choices"] = std::to_string(model.expert_choices);
    result["model.expert_hidden"] = std::to_string(expert_width(model));
    result["model.expert_capacity"] = number_text(model.expert_capacity);
  }
  if (counts.of(LayerKind::state_space) > 0) {
    result["model.state_size"] = std::to_string(model.state_size);
    result["model.state_head_size"] = std::to_string(model.state_head_size);
    result["model.state_groups"] = std::to_string(model.state_groups);
    result["model.state_expand"] = std::to_string(model.state_expand);
    result["model.conv_width"] = std::to_string(model.conv_width);
  }
  return result;
}

std::int64_t Profile::parameters(const LayerCounts& counts) const {
  std::int64_t sum = (counts.embedding ? embedding.parameters : 0) + (counts.head ? head.parameters : 0);
  for (std::size_t k = 0; k < layers.size(); ++k) sum += counts.layers[k] * layers[k].parameters;
  return sum;
}

std::vector<LayerKind> Profile::kinds() const {
  std::vector<LayerKind> result;
  for (int k = 0; k < layer_kinds; ++k) {
    if (has(static_cast<LayerKind>(k))) result.push_back(static_cast<LayerKind>(k));
  }
  return result;
}

RankProfile Profile::mean() const {
  RankProfile sum;
  const double share = ranks.empty() ? 0 : 1.0 / static_cast<double>(ranks.size());
  for (const RankProfile& rank : ranks) {
    for (const auto member : layer_members) {
      LayerTimes& mean = sum.*member;
      const LayerTimes& mine = rank.*member;
      for (const auto end : ends) mean.*end += share * (mine.*end);
      for (std::size_t k = 0; k < mine.layers.size(); ++k) mean.layers[k] += share * mine.layers[k];
    }
    for (const auto number : numbers) sum.*number += share * (rank.*number);
    sum.residual = std::max(sum.residual, rank.residual);
  }
  return sum;
}

void check_model(const std::string& file, const Profile& profile, const Deck& deck) {
  const ModelFingerprint here = model_fingerprint(deck);
  std::string differing;
  for (const auto& [key, value] : here) {
    const auto there = profile.model.find(key);
    const std::string measured = there == profile.model.end() ? "nothing" : there->second;
    if (measured != value) differing += "\n  " + key + ": " + measured + " in the profile, " + value + " in the deck";
  }
  const LayerCounts counts = count_layers(model_config(deck));
  for (int k = 0; k < layer_kinds; ++k) {
    const auto kind = static_cast<LayerKind>(k);
    if (counts.of(kind) == 0 || profile.has(kind)) continue;
    differing += std::string("\n  layers of kind ") + name_of(kind) + ": none in the profile, " +
                 std::to_string(counts.of(kind)) + " in the deck";
  }
  if (differing.empty()) return;
  throw InputError("profile " + file + " is of another model:" + differing +
                   "\nmeasure this deck with minipipe profile, or use the deck the profile was made from");
}

std::string machine_difference(const std::string& file, const Profile& profile, const Machine& here) {
  std::string differing;
  const auto compare = [&](const char* what, const std::string& there, const std::string& mine) {
    if (!mine.empty() && there != mine) {
      differing += std::string(differing.empty() ? "" : "; ") + what + " " + there + ", here " + mine;
    }
  };
  compare("host", profile.machine.hosts, here.hosts);
  compare("processor", profile.machine.cpu, here.cpu);
  return differing.empty() ? "" : "profile " + file + " is of another machine: " + differing;
}

}  // namespace minipipe::core
