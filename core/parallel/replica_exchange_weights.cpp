// Weights: gathers of layers, evaluation, and what travels after an update.
#include <algorithm>
#include <string>

#include "core/parallel/replica_exchange.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

bool ReplicaExchange::layer_complete(int layer) const {
  const Gathers& gathers = layers_[static_cast<std::size_t>(layer)];
  return std::none_of(gathers.begin(), gathers.end(), [](const auto& g) { return g != nullptr && g->pending(); });
}

void ReplicaExchange::begin_fetch(int layer) {
  int& gathered = gathered_[static_cast<std::size_t>(layer % 2)];
  if (gathered == layer) {
    return;
  }
  if (gathered >= 0) {  // fetched ahead and then not asked for
    const int unused = gathered;
    wait_for([&] { return layer_complete(unused); }, sums_, gathers_);
  }
  gathered = layer;
  for (const auto& transfer : layers_[static_cast<std::size_t>(layer)]) {
    if (transfer != nullptr) {
      gathers_.push(*transfer);
      weights_under_way_.begin();
    }
  }
}

void ReplicaExchange::fetch(int layer, int next) {
  if (!options_.sharded()) {
    return;
  }
  begin_fetch(layer);
  if (next >= 0 && next % 2 != layer % 2) {
    begin_fetch(next);
  }
  progress();
  if (!layer_complete(layer)) {
    weights_waited_.begin();
    wait_for([&] { return layer_complete(layer); }, sums_, gathers_);
    weights_waited_.end(weight_seconds_.exposed);
  }
  progress();
}

void ReplicaExchange::assemble(int layer, const Vector<float>& target) {
  for (const int fetched : gathered_) {
    if (fetched >= 0) {
      wait_for([&] { return layer_complete(fetched); }, sums_, gathers_);
    }
  }
  forget_fetched();
  const Gathers& gathers = evaluation_[static_cast<std::size_t>(layer)];
  for (const auto& transfer : gathers) {
    if (transfer != nullptr) {
      transfer->set_target(target);
      gathers_.push(*transfer);
    }
  }
  wait_for(
      [&] { return std::none_of(gathers.begin(), gathers.end(), [](const auto& g) { return g != nullptr && g->pending(); }); },
      sums_, gathers_);
}

bool ReplicaExchange::refreshes(std::int64_t update) const {
  return options_.sdp() && options_.backward_masking && (update + 1) % options_.refresh_period == 0;
}

void ReplicaExchange::weights_changed(std::int64_t update) {
  if (update != update_) {
    throw RunError("weights of update " + std::to_string(update) + " where those of update " + std::to_string(update_) +
                   " were expected");
  }
  update_ = update + 1;
  std::fill(begun_.begin(), begun_.end(), char{0});
  last_backward_ = false;
  gathered_ = {-1, -1};
  if (options_.sdp() && options_.average_period > 0 && update_ % options_.average_period == 0) {
    for (const auto& transfer : averages_) {
      if (transfer != nullptr) {
        transfer->set_scale(1.0 / static_cast<double>(transfer->plan().holders.size()));
        sums_.push(*transfer);
        averaging_ = true;
        weights_under_way_.begin();
      }
    }
  }
  refresh_due_ = options_.mode == ReplicaMode::zero1 || refreshes(update);
  weights_ready();
}

bool ReplicaExchange::weights_ready() {
  progress();
  // After an average, those who do not hold a bucket get the averaged values.
  if (refresh_due_ && sums_.empty()) {
    refresh_due_ = false;
    for (const auto& transfer : weights_) {
      if (transfer != nullptr) {
        gathers_.push(*transfer);
        weights_under_way_.begin();
      }
    }
    progress();
  }
  // Sums of gradients may be on their way; only averages are of weights.
  const bool ready = !refresh_due_ && !averaging_ && gathers_.empty();
  if (!ready) {
    weights_waited_.begin();
  }
  return ready;
}

}  // namespace minipipe::core
