#include "core/profile/profile.hpp"

#include <algorithm>
#include <array>

#include "core/model/model_config.hpp"
#include "core/train/options.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

constexpr std::array layer_members{&RankProfile::forward, &RankProfile::backward, &RankProfile::backward_input,
                                   &RankProfile::backward_weight, &RankProfile::update};
constexpr std::array kinds{&LayerTimes::embedding, &LayerTimes::block, &LayerTimes::head, &LayerTimes::received};
constexpr std::array numbers{&RankProfile::weight_copy, &RankProfile::weight_correct, &RankProfile::message_copy};

}  // namespace

ModelFingerprint model_fingerprint(const Deck& deck) {
  return {{"model.family", deck.model.family},
          {"model.width", std::to_string(deck.model.width)},
          {"model.heads", std::to_string(deck.model.heads)},
          {"model.kv_heads", std::to_string(kv_heads(model_config(deck)))},
          {"model.hidden", std::to_string(hidden_width(model_config(deck)))},
          {"model.vocab", std::to_string(deck.model.vocab)},
          {"model.context", std::to_string(deck.model.context)},
          {"model.tied", deck.model.tied ? "true" : "false"},
          {"model.dropout", deck.model.dropout > 0 ? "above 0" : "0"},
          {"train.sequence", std::to_string(deck.train.sequence)},
          {"train.microbatch_size", std::to_string(deck.train.microbatch_size)},
          {"train.optimizer", deck.train.optimizer},
          {"train.recompute", deck.train.recompute},
          {"precision.compute", deck.precision.compute}};
}

RankProfile Profile::mean() const {
  RankProfile sum;
  const double share = ranks.empty() ? 0 : 1.0 / static_cast<double>(ranks.size());
  for (const RankProfile& rank : ranks) {
    for (const auto member : layer_members) {
      for (const auto kind : kinds) sum.*member.*kind += share * (rank.*member.*kind);
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
