#pragma once

#include <cstdint>

namespace minipipe::core {

// Gives the tokens of each microbatch. The same microbatch must always give the same tokens, on every stage and in every
// run with the same data and seed.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Fills host arrays [microbatch_size * sequence], sequence by sequence. `targets` holds the next token of each position.
  // Either pointer may be null: the first stage needs tokens only, the last one targets only.
  virtual void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) = 0;
};

}  // namespace minipipe::core
