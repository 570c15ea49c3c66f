#pragma once

#include <random>
#include <vector>

#include "unit_tests/core/model/double_model.hpp"
#include "unit_tests/core/model/pipeline.hpp"

namespace minipipe::core::test {

inline std::vector<double> normal(std::size_t count, double deviation, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> distribution(0.0, deviation);
  std::vector<double> values(count);
  for (double& value : values) value = distribution(generator);
  return values;
}

// Random values far from the usual start, so that every part of the model matters.
inline std::vector<double> random_values(const ParameterEntry& entry) {
  auto values = normal(entry.size, entry.decay ? 0.3 : 0.1, 100 + entry.global_index);
  if (entry.start == Start::ones) {
    for (double& value : values) value += 1;
  }
  return values;
}

inline void set_random(DoubleModel& model) {
  for (const ParameterEntry& entry : model.entries) {
    DoubleModel::to_device(slice<double>(model.parameters, entry.offset, entry.size), random_values(entry));
  }
}

inline void set_batch(DoubleModel& model, HashedTokens& source, std::int64_t microbatch) {
  std::vector<std::int32_t> tokens(model.context.rows()), targets(model.context.rows());
  source.batch(microbatch, tokens.data(), targets.data());
  model.set_batch(tokens, targets);
  model.context.microbatch = microbatch;
}

}  // namespace minipipe::core::test
