#include "core/parallel/replica_exchange.hpp"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "core/comm/mpi_error.hpp"
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

void ReplicaExchange::check_layouts(MPI_Comm comm) const {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(link_.replicas()));
  check(MPI_Allgather(&fingerprint_, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, comm), "MPI_Allgather among replicas");
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] != all[0]) {
      throw RunError("replicas 0 and " + std::to_string(r) +
                     " disagree about which replica holds what: give all ranks the same deck");
    }
  }
}

std::int64_t ReplicaExchange::tags(const ExchangeLayout& layout) { return tagged_buckets(layout) * phases + 1; }

ReplicaExchange::ReplicaExchange(const ExchangeLayout& layout, const ExchangeArrays& arrays, MPI_Comm comm,
                                 const ExecutionSpace& space, Scale scale, int tag_base, ReplicaStreams streams)
    : ReplicaExchange(layout, ExchangePlans(layout), arrays, comm, space, std::move(scale), tag_base, std::move(streams)) {}

ReplicaExchange::ReplicaExchange(const ExchangeLayout& layout, const ExchangePlans& plans, const ExchangeArrays& arrays,
                                 MPI_Comm comm, const ExecutionSpace& space, Scale scale, int tag_base, ReplicaStreams streams)
    : options_(layout.options),
      buckets_(layout.buckets),
      layer_floats_(layout.layer_floats),
      arrays_(arrays),
      space_(space),
      scale_(std::move(scale)),
      link_(comm, tag_base, tags(layout)),
      norm_tag_(static_cast<int>(tags(layout)) - 1),
      sums_(link_, space, transfers_in_flight, plans.reduce_slot_floats, std::move(streams.sums)),
      gathers_(link_, space, transfers_in_flight, plans.gather_slot_floats, std::move(streams.gathers)),
      begun_(layout.buckets.size(), 0),
      norm_(std::make_shared<Norm>()) {
  if (link_.replica() != options_.replica || link_.replicas() != options_.replicas) {
    throw RunError("replica " + std::to_string(options_.replica) + " of " + std::to_string(options_.replicas) +
                   " was given the communicator of rank " + std::to_string(link_.replica()) + " of " +
                   std::to_string(link_.replicas()));
  }
  if (sums_.memory() != layout.memory || gathers_.memory() != layout.memory) {
    throw RunError("an exchange among replicas was planned for other messages than it was given");
  }
  fingerprint_ = fingerprint(layout);
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
    // Parts have one tag: only their first messages use it, which start in the same order on all holders.
    Reduces& parts = gradients_.emplace_back();
    for (const ReducePlan& plan : plans.gradients[b]) {
      parts.push_back(reduce(plan, gradient, gradients_of(layout, arrays_, buckets_[b]),
                             reduces_layer_buffers(options_) ? arrays_.gradients : gradients_of(layout, arrays_, buckets_[b])));
    }
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
    averaging_ = false;
    gradients_waited_.end(gradient_seconds_.exposed);
    gradients_under_way_.end(gradient_seconds_.total);
  }
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
