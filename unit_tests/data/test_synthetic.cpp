#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "data/synthetic.hpp"
#include "schedules/error.hpp"

namespace minipipe::data {
namespace {

TEST(Synthetic, RowsAndStationaryDistributionAreDistributions) {
  for (const std::int64_t vocab : {2, 3, 5, 64}) {
    SCOPED_TRACE(vocab);
    const SyntheticLanguage language(vocab, 9);
    const auto& pi = language.stationary();
    EXPECT_NEAR(std::accumulate(pi.begin(), pi.end(), 0.0), 1, 1e-13);
    std::vector<double> next(vocab, 0.0);
    for (std::int64_t i = 0; i < vocab; ++i) {
      double row = 0;
      for (std::int64_t j = 0; j < vocab; ++j) {
        row += language.probability(j, i);
        next[j] += pi[i] * language.probability(j, i);
      }
      EXPECT_NEAR(row, 1, 1e-14);
    }
    for (std::int64_t j = 0; j < vocab; ++j) EXPECT_NEAR(next[j], pi[j], 1e-15);
  }
}

TEST(Synthetic, EntropyIsThatOfItsDefinition) {
  const std::int64_t vocab = 64;
  const SyntheticLanguage language(vocab, 4);
  double rate = 0, single = 0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    single -= language.stationary()[i] * std::log(language.stationary()[i]);
    for (std::int64_t j = 0; j < vocab; ++j) {
      const double p = language.probability(j, i);
      rate -= language.stationary()[i] * p * std::log(p);
    }
  }
  EXPECT_NEAR(language.entropy(), rate, 1e-12);
  EXPECT_NEAR(language.unigram_entropy(), single, 1e-12);
  EXPECT_LT(language.entropy(), language.unigram_entropy() - 0.5);
  EXPECT_LT(language.unigram_entropy(), std::log(64.0));
}

TEST(Synthetic, TextHasTheStatedEntropy) {
  const std::int64_t vocab = 32, count = 400000;
  const SyntheticLanguage language(vocab, 21);
  const auto text = language.generate(count, 1);
  ASSERT_EQ(std::ssize(text), count);
  std::vector<double> pairs(vocab * vocab, 0.0), singles(vocab, 0.0);
  double surprise = 0;
  for (std::int64_t t = 1; t < count; ++t) {
    ASSERT_LT(text[t], vocab);
    surprise -= std::log(language.probability(text[t], text[t - 1]));
    ++pairs[text[t - 1] * vocab + text[t]];
    ++singles[text[t - 1]];
  }
  // Mean surprise under the true chain: standard error about sd / sqrt(count) = 1.6 / 632 = 0.0025.
  EXPECT_NEAR(surprise / (count - 1), language.entropy(), 0.0125);
  // Entropy of the counted pairs, without use of the chain: biased low by (V^2 - V) / (2 count) = 0.0013.
  double counted = 0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    for (std::int64_t j = 0; j < vocab; ++j) {
      const double n = pairs[i * vocab + j];
      if (n > 0) counted -= n / (count - 1) * std::log(n / singles[i]);
    }
    EXPECT_NEAR(singles[i] / (count - 1), language.stationary()[i], 0.006);
  }
  EXPECT_NEAR(counted, language.entropy(), 0.0135);
}

TEST(Synthetic, SeedsAndStreams) {
  const SyntheticLanguage language(50, 1), same(50, 1), other(50, 2);
  EXPECT_EQ(language.generate(500, 3), same.generate(500, 3));
  EXPECT_NE(language.generate(500, 3), language.generate(500, 4));
  EXPECT_NE(language.generate(500, 3), other.generate(500, 3));
}

TEST(Synthetic, VocabularyOutOfRange) {
  EXPECT_THROW(SyntheticLanguage(1, 1), InputError);
  EXPECT_THROW(SyntheticLanguage(65537, 1), InputError);
}

}  // namespace
}  // namespace minipipe::data
