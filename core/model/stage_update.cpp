// The optimizer step of a stage: norm, clipping, step.
#include <algorithm>
#include <cmath>

#include "core/kernels/elementwise.hpp"
#include "core/kernels/reduce.hpp"
#include "core/model/stage_implementation.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

double KokkosStage::Implementation::gradient_scale(const std::vector<int>& replicas, std::int64_t update) const {
  std::int64_t tokens = 0;
  for (const int replica : replicas) {
    for (std::int64_t k = 0; k < options.window; ++k) {
      const std::int64_t told =
          source.counted_tokens(options.replication.global_microbatch(update * options.window + k, replica));
      tokens += told < 0 ? rows() : told;
    }
  }
  return tokens > 0 ? static_cast<double>(rows() * options.window) / static_cast<double>(tokens) : 0.0;
}

// Where there is no exchange, nobody has weighted gradients by tokens.
double KokkosStage::Implementation::unreduced_scale(std::int64_t update) const {
  return exchange != nullptr ? 1.0 : gradient_scale({options.replication.replica}, update);
}

// Parts of one tensor are added up in their order.
std::vector<TensorSquares> KokkosStage::Implementation::read_squares(double scale) {
  if constexpr (!on_host) Kokkos::deep_copy(space, host_squares, squares);
  fence(space, "before sums of squares are read on the host, because they were enqueued");
  std::vector<TensorSquares> sums;
  for (std::size_t p = 0; p < square_tensors.size(); ++p) {
    const int index = square_tensors[p];
    if (sums.empty() || sums.back().global_index != index) sums.push_back({index, 0.0});
    sums.back().sum += scale * scale * host_squares(p);
  }
  return sums;
}

// The factor that brings the norm down to options.clip_norm.
double KokkosStage::Implementation::clip_factor(const std::vector<TensorSquares>& mine) {
  if (options.clip == Clip::none) return 1.0;
  double total = 0;
  if (options.clip == Clip::stage) {
    const std::vector<ParameterEntry>& tensors = store.layout().full;
    std::vector<double> sums(tensors.size(), 0.0);
    for (const TensorSquares& part : mine) {
      const auto at = std::lower_bound(tensors.begin(), tensors.end(), part.global_index,
                                       [](const ParameterEntry& entry, int index) { return entry.global_index < index; });
      sums[static_cast<std::size_t>(at - tensors.begin())] += part.sum;
    }
    if (exchange != nullptr && options.replication.replicas > 1) sums = exchange->sum_over_replicas(sums);
    for (const double sum : sums) total += sum;
  } else {
    if (!combine_squares) throw RunError("clipping by the global norm needs set_global_squares() before the first update");
    total = combine_squares(mine);
  }
  return std::min(1.0, options.clip_norm / (std::sqrt(total) + 1e-6));
}

bool KokkosStage::Implementation::ranges_are_tensors() const {
  const std::size_t tensors = store.entries().size();
  return options.replication.replicas == 1 && options.optimizer != OptimizerKind::muon &&
         store.optimizer().ranges.size() == tensors && square_tensors.size() == tensors;
}

void KokkosStage::Implementation::optimizer_step(double rate, std::int64_t step, double factor, bool with_squares) {
  const OptimizerLayout& by = store.optimizer();
  UpdateExtras<float> extras;
  if (with_squares) extras = {squares, sum_workspace};
  if (step_writes_copies()) extras.copies = newest_copies();
  const bool nesterov = options.optimizer == OptimizerKind::nadam;
  update_with_extras<float>(space, nesterov, store.parameters(), store.first_moment(), store.second_moment(), store.gradients(),
                            by.ranges, options.adamw, rate, step, factor, extras);
  const double peak = options.learning_rate.peak;
  const double muon_rate = peak > 0 ? rate * options.muon.learning_rate / peak : 0.0;
  muon_update<float>(space, store.parameters(), store.first_moment(), store.gradients(), by.matrices, options.muon,
                     options.adamw.weight_decay, muon_rate, factor, muon_memory.workspace());
}

void KokkosStage::Implementation::clear_gradients() {
  fill<float>(space, added_gradients_, 0.0f);
  fresh_gradients_.assign(fresh_gradients_.size(), !sharded());
}

void KokkosStage::Implementation::update(std::int64_t update, double rate) {
  const double scale = unreduced_scale(update);
  GradientSquares record{update, {}};
  double factor = scale;
  const bool one_pass = options.clip == Clip::none && ranges_are_tensors();
  if (!one_pass) {
    sums_of_squares<float>(space, squares, square_pieces, sum_workspace);
    record.squares = read_squares(scale);
    factor *= clip_factor(record.squares);
  }
  versions.before_update();
  optimizer_step(rate, update + 1, factor, one_pass);
  if (one_pass) record.squares = read_squares(scale);
  squares_taken.push_back(std::move(record));
  versions.after_update(update);
  if (step_writes_copies()) newest_copied();
  if (exchange != nullptr) exchange->weights_changed(update);
  clear_gradients();
}

}  // namespace minipipe::core
