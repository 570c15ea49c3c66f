#pragma once

#include "core/deck/deck.hpp"

namespace minipipe::core::test {

// Models so small that everything takes microseconds.
inline Deck tiny_deck(const std::string& family) {
  Deck deck;
  deck.model.family = family;
  deck.model.layers = 2;
  deck.model.width = 16;
  deck.model.heads = 2;
  deck.model.vocab = 11;
  deck.model.context = 8;
  if (family == "llama") deck.model.kv_heads = 1;
  if (family == "hybrid") {
    deck.model.pattern = "M*-#";
    deck.model.layers = 4;
  }
  deck.train.sequence = 8;
  deck.train.microbatch_size = 2;
  deck.train.microbatches = 2;
  return deck;
}

}  // namespace minipipe::core::test
