#pragma once

#include <string>
#include <vector>

#include "core/deck/parse.hpp"
#include "core/train/options.hpp"

namespace minipipe::tests {

inline constexpr const char* small_deck_text = R"([run]
steps = 12
[model]
layers = 8
width = 16
heads = 2
vocab = 32
context = 16
[train]
sequence = 8
microbatches = 4
[emulate]
forward_ms = 1.0
backward_ms = 2.0
)";

// A small deck with overrides, as the program would resolve it.
inline core::Deck small_deck(const std::vector<std::string>& overrides = {}) {
  return core::effective_deck(core::read_deck(small_deck_text, "test", overrides));
}

}  // namespace minipipe::tests
