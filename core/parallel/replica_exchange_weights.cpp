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

void ReplicaExchange::begin_fetch(int layer, int replaced) {
  if (replaced >= 0) {  // it may have been fetched ahead and then not asked for
    wait_for([&] { return layer_complete(replaced); }, sums_, gathers_);
  }
  for (const auto& transfer : layers_[static_cast<std::size_t>(layer)]) {
    if (transfer != nullptr) {
      gathers_.push(*transfer);
    }
  }
}

void ReplicaExchange::fetch(int layer, int next) {
  if (!options_.sharded()) {
    return;
  }
  gathered_.fetch(layer, next, [this](int wanted, int replaced) { begin_fetch(wanted, replaced); });
  progress();
  if (!layer_complete(layer)) {
    wait_for([&] { return layer_complete(layer); }, sums_, gathers_);
  }
  progress();
}

void ReplicaExchange::assemble(int layer, const Vector<float>& target) {
  for (const int fetched : gathered_.layers()) {
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
  forget_fetched();
  if (options_.averages() && update_ % options_.average_period == 0) {
    for (const auto& transfer : averages_) {
      if (transfer != nullptr) {
        transfer->set_scale(1.0 / static_cast<double>(transfer->plan().holders.size()));
        sums_.push(*transfer);
        averaging_ = true;
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
      }
    }
    progress();
  }
  // Sums of gradients may be on their way; only averages are of weights.
  return !refresh_due_ && !averaging_ && gathers_.empty();
}

}  // namespace minipipe::core
