#pragma once

#include <algorithm>

#include "unit_tests/core/model/pipeline.hpp"

namespace minipipe::core::test {

// Of microbatch m the first 3 m targets are not counted, and of microbatch 2 only one is.
class UnevenTokens : public HashedTokens {
 public:
  UnevenTokens(const TrainShape& shape, int vocab) : HashedTokens(shape, vocab), rows_(shape.rows()) {}
  void batch(std::int64_t microbatch, std::int32_t* tokens, std::int32_t* targets) override {
    HashedTokens::batch(microbatch, tokens, targets);
    for (std::int64_t i = 0; targets != nullptr && i < rows_ - counted_tokens(microbatch); ++i) targets[i] = -1;
  }
  std::int64_t counted_tokens(std::int64_t microbatch) override {
    return microbatch == 2 ? 1 : std::max<std::int64_t>(rows_ - 3 * microbatch, 0);
  }

 private:
  std::int64_t rows_;
};

}  // namespace minipipe::core::test
