#pragma once

#include <cstdint>

#include "data/token_file.hpp"

namespace minipipe::data {

// Cuts a token file into training examples. A window is sequence + 1 consecutive tokens; its first `sequence` are the inputs,
// the same shifted by one the targets.
//
// The rule (random order). Row r of microbatch m is draw d = m * microbatch_size + r. Draws come in epochs of windows() draws.
// In epoch e the windows start at o_e + k * sequence, k = 0 .. windows()-1, so each token is a target at most once per epoch;
// o_e is drawn anew per epoch from (seed, e), so that the cuts fall elsewhere each time. The order of the k within an epoch is
// a permutation keyed by (seed, e): a Feistel network on the next even number of bits, walked until it lands below windows()
// (Black and Rogaway, CT-RSA 2002). So each epoch sees each of its windows exactly once, and a batch depends on (seed, m)
// alone: not on the number of ranks, nor on what was drawn before; a resumed run goes on where it stopped without stored state.
//
// The rule (sequential order, for validation): o = 0 and no permutation: draw d is the window at (d mod windows()) * sequence.
class Sampler {
 public:
  // Random order. `file` is not owned and must outlive the sampler.
  // Throws InputError if the file holds no whole window.
  Sampler(const TokenFile& file, std::uint64_t seed, std::int64_t microbatch_size, std::int64_t sequence);

  // Sequential order.
  static Sampler sequential(const TokenFile& file, std::int64_t microbatch_size, std::int64_t sequence);

  // Fills tokens[microbatch_size][sequence] and targets[microbatch_size][sequence], row-major, host memory.
  // `microbatch` counts from 0 over the whole run and over all data-parallel replicas.
  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) const;

  // Windows per epoch.
  std::int64_t windows() const { return windows_; }

  // Microbatches that go once through the file without repeating a window; at least 1 (a short file is then repeated in it).
  std::int64_t microbatches() const;

  // First token of the window that draw number `draw` takes.
  std::int64_t window_start(std::int64_t draw) const;

 private:
  Sampler(const TokenFile& file, std::uint64_t seed, std::int64_t microbatch_size, std::int64_t sequence, bool random);

  const TokenFile* file_;
  std::uint64_t seed_;
  std::int64_t microbatch_size_;
  std::int64_t sequence_;
  std::int64_t windows_;
  bool random_;
};

}  // namespace minipipe::data
