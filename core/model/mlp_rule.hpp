#pragma once

#include <string>

namespace minipipe::core {

// Features inside the MLP: `hidden`, or the family's rule where that is 0: 4 width for gpt2; for llama and hybrid two
// thirds of that, rounded up to a multiple of 256 (the rule of llama's code). Standard library only: the deck's rules need it
// too.
inline int mlp_width(const std::string& family, int width, int hidden) {
  if (hidden > 0) return hidden;
  if (family != "llama" && family != "hybrid") return 4 * width;
  constexpr int multiple = 256;
  return (8 * width / 3 + multiple - 1) / multiple * multiple;
}

}  // namespace minipipe::core
