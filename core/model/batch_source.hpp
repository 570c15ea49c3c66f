#pragma once

#include <cstdint>

namespace minipipe::core {

// Gives the tokens of each microbatch. The same microbatch must always give the same tokens, on every stage and in every
// run with the same data and seed.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Fills host arrays [microbatch_size * sequence], sequence by sequence. `targets` holds the next token of each position;
  // negative: that position is not counted. Either pointer may be null: the first stage needs tokens only, the last one targets
  // only.
  virtual void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) = 0;

  // Targets of the microbatch that are counted; negative: all. Answers for any microbatch, other replicas' included, and
  // changes nothing.
  virtual std::int64_t counted_tokens(std::int64_t /*microbatch*/) { return -1; }
};

}  // namespace minipipe::core
