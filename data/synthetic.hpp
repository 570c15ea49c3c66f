#pragma once

#include <cstdint>
#include <vector>

namespace minipipe::data {

// A seeded synthetic language: a Markov chain of order 1 whose entropy rate is known, so that a test can say how low a loss may
// go. From each symbol i the chain goes to one of up to four seeded successors with probabilities falling by half from one to
// the next, except that with probability `floor` it goes to any symbol, all alike:
//   p(j | i) = floor / V + (1 - floor) * weight(rank of j among the successors of i).
// The floor makes the chain ergodic: its stationary distribution is unique and power iteration contracts by 1 - floor a step.
class SyntheticLanguage {
 public:
  static constexpr double floor = 0.05;

  // 2 <= vocab <= 65536, else InputError.
  SyntheticLanguage(std::int64_t vocab, std::uint64_t seed);

  std::int64_t vocab() const { return vocab_; }
  double probability(std::int64_t next, std::int64_t previous) const;
  const std::vector<double>& stationary() const { return stationary_; }

  // Entropy rate in nats per token: - sum_i stationary(i) sum_j p(j|i) log p(j|i), in closed form. The least mean loss of any
  // model that sees the previous token.
  double entropy() const { return entropy_; }

  // Entropy of a single token in nats: the least mean loss of a model that ignores its context.
  double unigram_entropy() const { return unigram_entropy_; }

  // `count` tokens, the first drawn from the stationary distribution. The same (language, count, stream) gives the same text.
  std::vector<std::uint16_t> generate(std::int64_t count, std::uint64_t stream) const;

 private:
  std::int64_t vocab_;
  int branching_;
  std::vector<std::uint16_t> successors_;  // [vocab][branching], most likely first
  std::vector<double> weights_;            // [branching], sum 1
  std::vector<double> stationary_;
  double entropy_ = 0;
  double unigram_entropy_ = 0;
};

}  // namespace minipipe::data
