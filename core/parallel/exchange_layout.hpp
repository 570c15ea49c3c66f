#pragma once

#include <cstdint>
#include <vector>

#include "core/model/replica_layout.hpp"
#include "core/parallel/staging.hpp"

namespace minipipe::core {

// What the exchange needs of a ReplicaLayout.
struct ExchangeLayout {
  ExchangeLayout() = default;
  ExchangeLayout(const ReplicaLayout& layout,  // NOLINT: a layout is given where this is asked for
                 ExchangeMemory exchange_memory = ExchangeMemory::host)
      : options(layout.options),
        memory(exchange_memory),
        buckets(layout.buckets),
        layers(layout.layers),
        layer_floats(layout.trained_layer_floats),
        layer_offsets(layout.gradient_layer_offsets) {}

  ReplicaOptions options;
  ExchangeMemory memory = ExchangeMemory::host;  // kernels: messages go through StreamLinks
  std::vector<Bucket> buckets;
  std::vector<std::vector<Bucket>> layers;
  // Sharded, by layer: floats of its gradient buffer; where its gradients start in the gradients' array if they are reduced
  // once per window.
  std::vector<std::int64_t> layer_floats;
  std::vector<std::int64_t> layer_offsets;
};

}  // namespace minipipe::core
