#pragma once

#include <cstdint>

namespace minipipe::core {

// Of the tokens of a microbatch that are counted.
struct MicrobatchLoss {
  std::int64_t microbatch = 0;  // its number over all replicas
  double loss = 0;              // mean per token in nats; 0 if none is counted
  std::int64_t tokens = 0;      // counted ones
};

}  // namespace minipipe::core
