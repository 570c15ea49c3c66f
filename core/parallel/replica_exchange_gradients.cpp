// Gradients: sums over holders, begun while the backward still runs.
#include <algorithm>
#include <string>

#include "core/kernels/elementwise.hpp"
#include "core/parallel/replica_exchange.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

void ReplicaExchange::begin_sum(std::size_t bucket) {
  begun_[bucket] = 1;
  for (const auto& sum : gradients_[bucket]) {
    if (sum == nullptr) {
      continue;
    }
    sum->set_scale(scale_(sum->plan().holders, update_));
    sums_.push(*sum);
    gradients_under_way_.begin();
  }
}

bool ReplicaExchange::sum_pending(std::size_t bucket) const {
  const Reduces& parts = gradients_[bucket];
  return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part != nullptr && part->pending(); });
}

void ReplicaExchange::gradient_begins(int layer) {
  if (!reduces_layer_buffers(options_)) {
    return;
  }
  // Layers whose gradients are formed in the same buffer.
  const auto read = [&] {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].first_layer % 2 == layer % 2 && sum_pending(b)) {
        return false;
      }
    }
    return true;
  };
  progress();
  if (!read()) {
    gradients_waited_.begin();
    wait_for(read, sums_, gathers_);
    gradients_waited_.end(gradient_seconds_.exposed);
  }
  fill<float>(
      space_,
      slice(arrays_.layer_gradients[static_cast<std::size_t>(layer % 2)], 0, layer_floats_[static_cast<std::size_t>(layer)]),
      0.0F);
}

void ReplicaExchange::gradient_done(int layer, bool last) {
  last_backward_ = last_backward_ || last;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    if (reduces_layer_buffers(options_) ? buckets_[b].first_layer == layer
                                        : last && begun_[b] == 0 && buckets_[b].first_layer >= layer) {
      begin_sum(b);
    }
  }
  progress();
}

bool ReplicaExchange::gradients_ready(std::int64_t update) {
  if (update != update_) {
    throw RunError("gradients of update " + std::to_string(update) + " where those of update " + std::to_string(update_) +
                   " were expected");
  }
  // A stage need not tell of layers that it does not have or hold.
  if (last_backward_ && !reduces_layer_buffers(options_)) {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (begun_[b] == 0) {
        begin_sum(b);
      }
    }
  }
  progress();
  if (!sums_.empty()) {
    gradients_waited_.begin();
  }
  // Gathers too: the optimizer changes what they send.
  return sums_.empty() && gathers_.empty();
}

}  // namespace minipipe::core
