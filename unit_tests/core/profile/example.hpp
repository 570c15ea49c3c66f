#pragma once

#include "core/profile/profile.hpp"

namespace minipipe::core {

// Times of a model of transformer layers.
inline LayerTimes transformer_times(double embedding, double layer, double head, double received) {
  LayerTimes times{embedding, {}, head, received};
  times.of(LayerKind::transformer) = layer;
  return times;
}

// Two ranks with given times; the second is twice as slow in the forward.
inline Profile example_profile(const Deck& deck) {
  Profile profile;
  profile.model = model_fingerprint(deck);
  profile.machine = {"alpha,beta", "some processor", "OpenMP", 3};
  profile.deck = "[run]\nname = \"x\"\n";
  profile.version = "1.2.3";
  profile.git_hash = "abc";
  profile.message_bytes = 65536;
  profile.undetermined = "forward: embedding + head";
  profile.embedding = {1000, 8};
  profile.layers[static_cast<std::size_t>(LayerKind::transformer)] = {200, 4096};
  profile.head = {30, 512};
  RankProfile rank;
  rank.forward = transformer_times(0.5e-3, 2e-3, 1e-3, 0.25e-3);
  rank.backward = transformer_times(1e-3, 6e-3, 2e-3, 0.5e-3);
  rank.backward_input = transformer_times(0, 4e-3, 1e-3, 0.5e-3);
  rank.backward_weight = transformer_times(1e-3, 4e-3, 1e-3, 0);
  rank.update = transformer_times(3e-3, 1e-3, 2e-3, 0);
  rank.weight_copy = 1e-9;
  rank.weight_correct = 2e-9;
  rank.message_copy = 1e-5;
  rank.residual = 0.01;
  profile.ranks = {rank, rank};
  profile.ranks[1].forward.of(LayerKind::transformer) = 4e-3;
  profile.link = {1e-6, 2e-6, 10e-6, 4e-6, 1e10};
  return profile;
}

inline constexpr LayerKind hybrid_kinds[] = {LayerKind::attention, LayerKind::mlp, LayerKind::experts, LayerKind::state_space};

// A deck with a layer of each kind of a hybrid, and its profile: a layer of the k-th kind takes (k + 1) ms in everything, and
// the ends as in example_profile.
inline Deck example_hybrid() {
  Deck deck;
  deck.model.family = "hybrid";
  deck.model.pattern = "*-#M";
  deck.model.layers = 4;
  return deck;
}

inline Profile example_hybrid_profile() {
  Profile profile = example_profile(example_hybrid());
  profile.layers = {};
  for (RankProfile& rank : profile.ranks) {
    int number = 0;
    for (const LayerKind kind : hybrid_kinds) {
      ++number;
      profile.of(kind) = {100 * number, 1024 * number};
      for (LayerTimes* times : {&rank.forward, &rank.backward, &rank.backward_input, &rank.backward_weight, &rank.update}) {
        times->of(LayerKind::transformer) = 0;
        times->of(kind) = 1e-3 * number;
      }
    }
  }
  return profile;
}

}  // namespace minipipe::core
