// Gradients of subnetwork data parallelism (arXiv 2507.09029) against references that know nothing of replicas.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "unit_tests/numerics/sdp_case.hpp"

namespace minipipe::core::test {
namespace {

constexpr double beta1 = 0.9;

KokkosStageOptions one_stage(KokkosStageOptions options) {
  options.layers = {true, 0, options.model.layers, true};
  options.model.dropout = 0;
  options.adamw.beta1 = beta1;
  return options;
}

// Numbers microbatches as one replica does.
class ReplicaSource : public BatchSource {
 public:
  ReplicaSource(BatchSource& source, const ReplicaOptions& options) : source_(source), options_(options) {}
  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override {
    source_.batch(options_.global_microbatch(microbatch), tokens, targets);
  }
  std::int64_t counted_tokens(std::int64_t microbatch) override {
    return source_.counted_tokens(options_.global_microbatch(microbatch));
  }

 private:
  BatchSource& source_;
  ReplicaOptions options_;
};

// The unsplit model. What a replica leaves out adds nothing to the residual stream if its output projection is zero.
struct Reference {
  Reference(const KokkosStageOptions& options, const SdpCase& sdp, const ReplicaOptions& replica, BatchSource& batches)
      : source(batches, replica), stage(options, source) {
    const int hidden = hidden_width(options.model);
    ParameterStore& store = stage.parameters();
    for (std::size_t e = 0; !sdp.backward && e < store.entries().size(); ++e) {
      const ParameterEntry& entry = store.entries()[e];
      if (entry.name.find("c_proj") == std::string::npos && entry.name.find("o_proj") == std::string::npos &&
          entry.name.find("down_proj") == std::string::npos) {
        continue;
      }
      std::vector<float> values = store.parameter(e);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const int unit = unit_at(sdp, entry, i, hidden);
        if (unit >= 0 && !replica.masks.holds(replica.replica, unit)) values[i] = 0;
      }
      store.set_parameter(e, values);
    }
    for (std::int64_t k = 0; k < options.window; ++k) {
      const int slot = static_cast<int>(k % options.activation_slots);
      stage.forward(k, slot, -1, -1);
      stage.backward(k, slot, -1, -1);
      tokens += source.counted_tokens(k);
    }
    stage.complete_output();
  }

  static int unit_at(const SdpCase& sdp, const ParameterEntry& entry, std::size_t i, int hidden) {
    const auto width = static_cast<std::size_t>(entry.shape.back());
    return sdp.unit_of(entry.name, static_cast<int>(i / width), static_cast<int>(i % width), hidden);
  }

  ReplicaSource source;
  KokkosStage stage;
  std::int64_t tokens = 0;
};

// Weighted by the tokens that each holder counts: the gradient of the mean over the holders' tokens.
TEST(SdpGradients, AreTheHoldersMeansOfMaskedModels) {
  for (const KokkosStageOptions& family : {small_options(), small_llama()}) {
    for (const SdpCase& sdp : sdp_cases()) {
      SCOPED_TRACE(family.model.family + ", " + sdp.text());
      KokkosStageOptions options = one_stage(family);
      options.window = 2;
      UnevenTokens source(options.shape, options.model.vocab);
      const auto replicas = sdp.replicas(3, options.model.layers, 0.75, 11);
      std::vector<std::unique_ptr<Reference>> references;
      for (const ReplicaOptions& replica : replicas) {
        references.push_back(std::make_unique<Reference>(options, sdp, replica, source));
      }
      ReplicaGroup group(options, replicas, source);
      group.step(0);
      const auto moments = first_moments(group);

      const auto& entries = references[0]->stage.parameters().entries();
      EXPECT_EQ(moments.size(), entries.size());
      const double rows = options.shape.rows() * static_cast<double>(options.window);
      bool uneven = false;
      for (std::size_t e = 0; e < entries.size(); ++e) {
        std::vector<std::vector<float>> gradients;
        for (const auto& reference : references) gradients.push_back(reference->stage.parameters().gradient(e));
        std::vector<double> expected(entries[e].size);
        double largest = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const int unit = Reference::unit_at(sdp, entries[e], i, hidden_width(options.model));
          double sum = 0;
          double tokens = 0;
          for (int r = 0; r < 3; ++r) {
            if (unit >= 0 && !replicas[0].masks.holds(r, unit)) continue;
            sum += gradients[static_cast<std::size_t>(r)][i] * rows;
            tokens += static_cast<double>(references[static_cast<std::size_t>(r)]->tokens);
          }
          expected[i] = sum / tokens;
          uneven |= tokens != 3 * rows;
          largest = std::max(largest, std::abs(expected[i]));
        }
        EXPECT_GT(largest, 0) << entries[e].name;
        const std::vector<float>& found = moments.at(entries[e].name);
        ASSERT_EQ(found.size(), expected.size()) << entries[e].name;
        for (std::size_t i = 0; i < found.size(); ++i) {
          ASSERT_NEAR(found[i] / (1 - beta1), expected[i], 1e-5 * largest) << entries[e].name << " " << i;
        }
      }
      EXPECT_TRUE(uneven);
    }
  }
}

// Bits of what is held, by bucket.
std::uint64_t hash_of(const std::vector<float>& values) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const float value : values) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211ULL;
  return hash;
}

TEST(SdpGradients, HoldersHaveTheSameBitsAfterEveryUpdate) {
  for (const SdpCase& sdp : sdp_cases()) {
    SCOPED_TRACE(sdp.text());
    KokkosStageOptions options = small_options();
    options.model.layers = 3;
    options.window = 1;
    options.clip = Clip::stage;
    options.clip_norm = 0.1;
    HashedTokens source(options.shape, options.model.vocab);
    ReplicaGroup group(options, sdp.replicas(3, options.model.layers, 0.67, 3), source);
    std::vector<std::uint64_t> before(group.layout(0).buckets.size(), 0);
    for (int update = 0; update < 100; ++update) {
      group.step(update);
      for (std::size_t b = 0; b < before.size(); ++b) {
        std::vector<std::uint64_t> hashes;
        for (int r = 0; r < 3; ++r) {
          const Bucket& bucket = group.layout(r).buckets[b];
          if (bucket.number_of(r) < 0 && !sdp.backward) continue;  // backward masking: refreshed
          hashes.push_back(
              hash_of(read_pieces(group.stages[static_cast<std::size_t>(r)]->parameters().parameters(), bucket.parameters)));
        }
        ASSERT_EQ(std::count(hashes.begin(), hashes.end(), hashes.front()), std::ssize(hashes))
            << "bucket " << b << " after update " << update;
        ASSERT_NE(hashes.front(), before[b]) << "bucket " << b << " did not move in update " << update;
        before[b] = hashes.front();
      }
    }
  }
}

// Nor by decay or by momentum: alone, without refreshes, the values stay what they were.
TEST(SdpGradients, WhatIsNotHeldIsMovedByNothing) {
  for (const SdpCase& sdp : sdp_cases()) {
    SCOPED_TRACE(sdp.text());
    KokkosStageOptions options = one_stage(small_options());
    options.adamw.weight_decay = 0.5;
    options.replication = sdp.replicas(2, options.model.layers, 0.75, 5)[1];
    HashedTokens source(options.shape, options.model.vocab);
    KokkosStage stage(options, source);
    const ParameterStore& store = stage.parameters();
    const int hidden = hidden_width(options.model);
    std::vector<std::vector<float>> before;
    for (std::size_t e = 0; e < store.entries().size(); ++e) before.push_back(store.parameter(e));
    for (std::int64_t m = 0; m < 5 * options.window; ++m) {
      const int slot = static_cast<int>(m % options.activation_slots);
      stage.forward(m, slot, -1, -1);
      stage.backward(m, slot, -1, -1);
      if ((m + 1) % options.window == 0) stage.update(m / options.window);
    }
    stage.complete_output();
    std::int64_t unheld = 0, held = 0, moved = 0;
    for (std::size_t e = 0; e < store.entries().size(); ++e) {
      const ParameterEntry& entry = store.entries()[e];
      const std::vector<float> after = store.parameter(e);
      const int width = entry.shape.back();
      for (const Slab& slab : entry.slabs) {
        for (int i = 0; i < slab.rows * slab.columns; ++i) {
          const int row = i / slab.columns, column = i % slab.columns;
          const auto at = static_cast<std::size_t>(slab.row + row) * width + slab.column + column;
          const int unit = sdp.unit_of(entry.name, slab.full_row + row, slab.full_column + column, hidden);
          if (unit < 0 || options.replication.masks.holds(1, unit)) {
            ++held;
            moved += after[at] != before[e][at] ? 1 : 0;
          } else {
            ++unheld;
            ASSERT_EQ(after[at], before[e][at]) << entry.name << " " << at;
          }
        }
      }
    }
    EXPECT_GT(moved, held * 9 / 10);
    // Forward masking: what is not held is not there.
    EXPECT_EQ(unheld > 0, sdp.backward);
  }
}

// Projections of the gradient of every tensor on fixed random directions.
std::map<std::string, double> projections(const std::map<std::string, std::vector<float>>& moments) {
  std::map<std::string, double> result;
  std::mt19937 random(17);
  std::normal_distribution<double> normal;
  for (const auto& [name, values] : moments) {
    double sum = 0;
    for (const float value : values) sum += value * normal(random);
    result[name] = sum;
  }
  return result;
}

// How far the mean over random masks lies from the full model's gradient, in standard errors; the largest over the tensors.
double largest_deviation(const SdpCase& sdp, int draws) {
  constexpr int workers = 4;
  KokkosStageOptions options = one_stage(small_options());
  options.window = 1;
  HashedTokens source(options.shape, options.model.vocab);
  std::vector<ReplicaOptions> full(workers, ReplicaOptions{.mode = ReplicaMode::ddp, .replicas = workers});
  for (int r = 0; r < workers; ++r) full[static_cast<std::size_t>(r)].replica = r;
  ReplicaGroup reference(options, full, source);
  reference.step(0);
  const auto expected = projections(first_moments(reference));

  std::map<std::string, double> sums, squares;
  for (int draw = 0; draw < draws; ++draw) {
    ReplicaGroup group(options, sdp.replicas(workers, options.model.layers, 0.5, 100 + static_cast<std::uint64_t>(draw)),
                       source);
    group.step(0);
    for (const auto& [name, value] : projections(first_moments(group))) {
      sums[name] += value - expected.at(name);
      squares[name] += (value - expected.at(name)) * (value - expected.at(name));
    }
  }
  double largest = 0;
  for (const auto& [name, sum] : sums) {
    const double mean = sum / draws;
    const double variance = (squares[name] / draws - mean * mean) / (draws - 1);
    // What all hold does not vary with the masks under backward masking: rounding is all there is.
    const double rounding = 1e-6 * (std::abs(expected.at(name)) + 1e-3);
    if (std::abs(mean) > rounding) largest = std::max(largest, std::abs(mean) / std::sqrt(variance + rounding * rounding));
  }
  return largest;
}

// Means over holders of unmasked gradients have the full model's gradient as their expectation. Of 53 tensors' means the
// largest lies beyond 5 standard errors once in 30000 seeds. Forward masking is biased, and is found to be: so can this fail.
TEST(SdpGradients, UnderBackwardMaskingAreUnbiased) {
  for (const SdpUnit unit : {SdpUnit::block, SdpUnit::sublayer}) {
    EXPECT_LT(largest_deviation({unit, true}, 120), 5);
    EXPECT_GT(largest_deviation({unit, false}, 120), 10);
  }
}

}  // namespace
}  // namespace minipipe::core::test
