#pragma once

#include "core/profile/profile.hpp"

namespace minipipe::core {

// Two ranks with given times; the second is twice as slow in the forward.
inline Profile example_profile(const Deck& deck) {
  Profile profile;
  profile.model = model_fingerprint(deck);
  profile.machine = {"alpha,beta", "some processor", "OpenMP", 3};
  profile.deck = "[run]\nname = \"x\"\n";
  profile.version = "1.2.3";
  profile.git_hash = "abc";
  profile.message_bytes = 65536;
  profile.embedding_parameters = 1000;
  profile.block_parameters = 200;
  profile.head_parameters = 30;
  RankProfile rank;
  rank.forward = {0.5e-3, 2e-3, 1e-3, 0.25e-3};
  rank.backward = {1e-3, 6e-3, 2e-3, 0.5e-3};
  rank.backward_input = {0, 4e-3, 1e-3, 0.5e-3};
  rank.backward_weight = {1e-3, 4e-3, 1e-3, 0};
  rank.update = {3e-3, 1e-3, 2e-3, 0};
  rank.weight_copy = 1e-9;
  rank.weight_correct = 2e-9;
  rank.message_copy = 1e-5;
  rank.residual = 0.01;
  profile.ranks = {rank, rank};
  profile.ranks[1].forward.block = 4e-3;
  profile.link = {1e-6, 2e-6, 10e-6, 4e-6, 1e10};
  return profile;
}

}  // namespace minipipe::core
