#include "core/parallel/replica_exchange.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "core/comm/nap.hpp"
#include "core/kernels/elementwise.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

// What a message is about: with the bucket it makes the tag.
enum class Phase { gradient, gradient_sum, average, average_sum, weights, layer, evaluation };
constexpr int phases = 7;

int tag_of(std::size_t bucket, Phase phase) { return static_cast<int>(bucket) * phases + static_cast<int>(phase); }

std::int64_t tagged_buckets(const ExchangeLayout& layout) {
  std::size_t in_layers = 0;
  for (const auto& layer : layout.layers) in_layers += layer.size();
  return static_cast<std::int64_t>(std::max(in_layers, layout.buckets.size()));
}

// What the pieces `gradients` of the bucket are in.
Vector<float> gradients_of(const ExchangeLayout& layout, const ExchangeArrays& arrays, const Bucket& bucket) {
  if (reduces_layer_buffers(layout.options)) {
    return arrays.layer_gradients[static_cast<std::size_t>(bucket.first_layer % 2)];
  }
  const auto offset =
      layout.options.sharded() ? layout.layer_offsets[static_cast<std::size_t>(bucket.first_layer)] : std::int64_t{0};
  return slice(arrays.gradients, offset, static_cast<std::int64_t>(arrays.gradients.size()) - offset);
}

template <class Condition>
void wait_for(Condition&& condition, TransferQueue& a, TransferQueue& b) {
  Nap nap;
  while (!condition()) {
    const bool moved = a.poll();
    if (b.poll() || moved) {
      nap.reset();
    } else {
      nap.idle();
    }
  }
}

}  // namespace

struct ReplicaExchange::Norm {
  std::vector<std::vector<double>> values;  // by replica
  std::vector<MPI_Request> receives;
  std::vector<MPI_Request> sends;
  ~Norm() {
    if (!abandon(receives, sends)) {
      [[maybe_unused]] auto* left = new (std::nothrow) std::vector<std::vector<double>>(std::move(values));
    }
  }
};

std::int64_t ReplicaExchange::tags(const ExchangeLayout& layout) { return tagged_buckets(layout) * phases + 1; }

ReplicaExchange::ReplicaExchange(const ExchangeLayout& layout, const ExchangeArrays& arrays, MPI_Comm comm,
                                 const ExecutionSpace& space, Scale scale, int tag_base)
    : ReplicaExchange(layout, ExchangePlans(layout), arrays, comm, space, std::move(scale), tag_base) {}

ReplicaExchange::ReplicaExchange(const ExchangeLayout& layout, const ExchangePlans& plans, const ExchangeArrays& arrays,
                                 MPI_Comm comm, const ExecutionSpace& space, Scale scale, int tag_base)
    : options_(layout.options),
      buckets_(layout.buckets),
      layer_floats_(layout.layer_floats),
      arrays_(arrays),
      space_(space),
      scale_(std::move(scale)),
      link_(comm, tag_base, tags(layout)),
      norm_tag_(static_cast<int>(tags(layout)) - 1),
      sums_(link_, space, transfers_in_flight, plans.reduce_slot_floats),
      gathers_(link_, space, transfers_in_flight, plans.gather_slot_floats),
      begun_(layout.buckets.size(), 0),
      norm_(std::make_shared<Norm>()) {
  if (link_.replica() != options_.replica || link_.replicas() != options_.replicas) {
    throw RunError("replica " + std::to_string(options_.replica) + " of " + std::to_string(options_.replicas) +
                   " was given the communicator of rank " + std::to_string(link_.replica()) + " of " +
                   std::to_string(link_.replicas()));
  }
  sums_.keep(arrays_.owner);
  gathers_.keep(arrays_.owner);
  const auto gather = [](const GatherPlan& plan, int tag, TrafficPurpose purpose, const Vector<float>& from,
                         const Vector<float>& to) {
    auto transfer = std::make_unique<BucketGather>(plan, tag, purpose, from, to);
    return transfer->empty() ? nullptr : std::move(transfer);
  };
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const BucketReduce::Use gradient{tag_of(b, Phase::gradient), TrafficPurpose::reduce_scatter, TrafficPurpose::all_gather};
    const BucketReduce::Use average{tag_of(b, Phase::average), TrafficPurpose::average, TrafficPurpose::average};
    const auto reduce = [](const ReducePlan& plan, const BucketReduce::Use& use, const Vector<float>& from,
                           const Vector<float>& to) {
      return plan.holders.empty() ? nullptr : std::make_unique<BucketReduce>(plan, use, from, to);
    };
    gradients_.push_back(
        reduce(plans.gradients[b], gradient, gradients_of(layout, arrays_, buckets_[b]),
               reduces_layer_buffers(options_) ? arrays_.gradients : gradients_of(layout, arrays_, buckets_[b])));
    averages_.push_back(reduce(plans.averages[b], average, arrays_.parameters, arrays_.parameters));
    weights_.push_back(gather(plans.weights[b], tag_of(b, Phase::weights),
                              options_.sdp() ? TrafficPurpose::refresh : TrafficPurpose::parameter_gather, arrays_.parameters,
                              arrays_.parameters));
  }
  std::size_t number = 0;
  for (std::size_t l = 0; l < plans.layers.size(); ++l) {
    Gathers& fetched = layers_.emplace_back();
    Gathers& evaluated = evaluation_.emplace_back();
    for (std::size_t i = 0; i < plans.layers[l].size(); ++i, ++number) {
      fetched.push_back(gather(plans.layers[l][i], tag_of(number, Phase::layer), TrafficPurpose::parameter_gather,
                               arrays_.parameters, arrays_.layer_weights[l % 2]));
      evaluated.push_back(gather(plans.evaluation[l][i], tag_of(number, Phase::evaluation), TrafficPurpose::evaluation,
                                 arrays_.parameters, Vector<float>()));
    }
  }
}

void ReplicaExchange::progress() {
  sums_.poll();
  gathers_.poll();
  if (sums_.empty()) {
    gradients_under_way_.end(gradient_seconds_.total);
  }
  if (gathers_.empty()) {
    weights_under_way_.end(weight_seconds_.total);
  }
}

// Weights

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
      }
    }
  }
  refresh_due_ = options_.mode == ReplicaMode::zero1 || refreshes(update);
  weights_waited_.begin();
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
  if (refresh_due_ || !sums_.empty() || !gathers_.empty()) {
    return false;
  }
  weights_waited_.end(weight_seconds_.exposed);
  return true;
}

// Gradients

void ReplicaExchange::begin_sum(std::size_t bucket) {
  BucketReduce* sum = gradients_[bucket].get();
  begun_[bucket] = 1;
  if (sum == nullptr) {
    return;
  }
  sum->set_scale(scale_(sum->plan().holders, update_));
  sums_.push(*sum);
  gradients_under_way_.begin();
}

void ReplicaExchange::gradient_begins(int layer) {
  if (!reduces_layer_buffers(options_)) {
    return;
  }
  // Layers whose gradients are formed in the same buffer.
  const auto read = [&] {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].first_layer % 2 == layer % 2 && gradients_[b] != nullptr && gradients_[b]->pending()) {
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
  // Gathers too: the optimizer changes what they send.
  if (!sums_.empty() || !gathers_.empty()) {
    gradients_waited_.begin();
    return false;
  }
  gradients_waited_.end(gradient_seconds_.exposed);
  return true;
}

std::vector<double> ReplicaExchange::sum_over_replicas(const std::vector<double>& mine) {
  const auto replicas = static_cast<std::size_t>(link_.replicas());
  norm_->values.assign(replicas, std::vector<double>(mine.size()));
  norm_->values[static_cast<std::size_t>(link_.replica())] = mine;
  norm_->receives.assign(replicas, MPI_REQUEST_NULL);
  norm_->sends.assign(replicas, MPI_REQUEST_NULL);
  for (std::size_t r = 0; r < replicas; ++r) {
    const int peer = static_cast<int>(r);
    if (peer != link_.replica() && !mine.empty()) {
      link_.receive(norm_->values[r], peer, norm_tag_, norm_->receives[r]);
      link_.send(norm_->values[static_cast<std::size_t>(link_.replica())], peer, norm_tag_, TrafficPurpose::norm,
                 norm_->sends[r]);
    }
  }
  wait_for(
      [&] {
        const bool received = completed(norm_->receives);
        return completed(norm_->sends) && received;
      },
      sums_, gathers_);
  std::vector<double> sum = norm_->values.front();
  for (std::size_t r = 1; r < replicas; ++r) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += norm_->values[r][i];
    }
  }
  return sum;
}

}  // namespace minipipe::core
