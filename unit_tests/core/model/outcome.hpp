#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "unit_tests/core/model/pipeline.hpp"

namespace minipipe::core::test {

// What a short training leaves behind.
struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<float>> parameters, first_moments, second_moments;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

inline Outcome train(const KokkosStageOptions& options, int stages, const std::vector<int>& partition = {}, int updates = 4) {
  Pipeline pipeline(options, stages, partition);
  for (int u = 0; u < updates; ++u) pipeline.step(u);
  return {pipeline.take_losses(), pipeline.read(&ParameterStore::parameter), pipeline.read(&ParameterStore::first_moment),
          pipeline.read(&ParameterStore::second_moment)};
}

inline void expect_same(const Outcome& one, const Outcome& other) {
  EXPECT_EQ(one.losses, other.losses);
  ASSERT_EQ(one.parameters.size(), other.parameters.size());
  for (const auto& [name, values] : one.parameters) EXPECT_EQ(values, other.parameters.at(name)) << name;
  EXPECT_TRUE(one == other);
}

}  // namespace minipipe::core::test
