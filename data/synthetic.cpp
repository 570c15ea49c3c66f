#include "data/synthetic.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "data/hash.hpp"
#include "schedules/error.hpp"

namespace minipipe::data {
namespace {

double plogp(double p) { return p > 0 ? p * std::log(p) : 0; }

}  // namespace

SyntheticLanguage::SyntheticLanguage(std::int64_t vocab, std::uint64_t seed)
    : vocab_(vocab), branching_(static_cast<int>(std::min<std::int64_t>(4, vocab))) {
  if (vocab < 2 || vocab > 65536) {
    throw InputError("vocab = " + std::to_string(vocab) + " of the synthetic language is not in 2 .. 65536");
  }
  weights_.resize(branching_);
  double total = 0;
  for (int r = 0; r < branching_; ++r) total += weights_[r] = std::ldexp(1.0, -r);
  for (double& weight : weights_) weight /= total;

  successors_.reserve(vocab * branching_);
  for (std::int64_t i = 0; i < vocab; ++i) {
    const std::size_t row = successors_.size();
    for (std::uint64_t draw = 0; successors_.size() < row + branching_; ++draw) {
      const auto candidate = static_cast<std::uint16_t>(mix(mix(seed, i), draw) % static_cast<std::uint64_t>(vocab));
      const auto begin = successors_.begin() + static_cast<std::ptrdiff_t>(row);
      if (std::find(begin, successors_.end(), candidate) == successors_.end()) successors_.push_back(candidate);
    }
  }

  // Power iteration contracts the error by 1 - floor = 0.95 a step: 800 steps reach 1e-17.
  stationary_.assign(vocab, 1.0 / static_cast<double>(vocab));
  std::vector<double> next(vocab);
  for (int step = 0; step < 800; ++step) {
    std::fill(next.begin(), next.end(), floor / static_cast<double>(vocab));
    for (std::int64_t i = 0; i < vocab; ++i) {
      for (int r = 0; r < branching_; ++r) next[successors_[i * branching_ + r]] += (1 - floor) * stationary_[i] * weights_[r];
    }
    stationary_.swap(next);
  }

  // All rows hold the same set of probabilities, so each row has the entropy of any row.
  const double rest = floor / static_cast<double>(vocab);
  entropy_ = -static_cast<double>(vocab - branching_) * plogp(rest);
  for (double weight : weights_) entropy_ -= plogp(rest + (1 - floor) * weight);
  for (double p : stationary_) unigram_entropy_ -= plogp(p);
}

double SyntheticLanguage::probability(std::int64_t next, std::int64_t previous) const {
  double p = floor / static_cast<double>(vocab_);
  for (int r = 0; r < branching_; ++r) {
    if (successors_[previous * branching_ + r] == next) p += (1 - floor) * weights_[r];
  }
  return p;
}

std::vector<std::uint16_t> SyntheticLanguage::generate(std::int64_t count, std::uint64_t stream) const {
  std::vector<std::uint16_t> text;
  text.reserve(count);
  std::vector<double> cumulative(stationary_);
  for (std::size_t i = 1; i < cumulative.size(); ++i) cumulative[i] += cumulative[i - 1];
  for (std::int64_t t = 0; t < count; ++t) {
    const std::uint64_t random = mix(stream, static_cast<std::uint64_t>(t));
    const double u = unit_interval(random);
    if (t == 0) {
      const auto at = std::lower_bound(cumulative.begin(), cumulative.end(), u * cumulative.back());
      text.push_back(static_cast<std::uint16_t>(at - cumulative.begin()));
    } else if (u < floor) {
      text.push_back(static_cast<std::uint16_t>(mix(random) % static_cast<std::uint64_t>(vocab_)));
    } else {
      double left = (u - floor) / (1 - floor);
      int r = 0;
      while (r < branching_ - 1 && left >= weights_[r]) left -= weights_[r++];
      text.push_back(successors_[text.back() * branching_ + r]);
    }
  }
  return text;
}

}  // namespace minipipe::data
