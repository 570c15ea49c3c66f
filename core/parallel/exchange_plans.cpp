#include "core/parallel/exchange_plans.hpp"

#include <algorithm>
#include <numeric>

#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

Pieces run(std::int64_t offset, std::int64_t floats) { return {Piece{offset, 1, floats, floats}}; }

std::vector<int> others(const std::vector<int>& replicas, int me) {
  std::vector<int> result;
  std::copy_if(replicas.begin(), replicas.end(), std::back_inserter(result), [me](int r) { return r != me; });
  return result;
}

std::vector<int> non_holders(const Bucket& bucket, int replicas) {
  std::vector<int> result;
  for (int r = 0; r < replicas; ++r) {
    if (bucket.number_of(r) < 0) result.push_back(r);
  }
  return result;
}

std::vector<int> all_of(int replicas) {
  std::vector<int> result(static_cast<std::size_t>(replicas));
  std::iota(result.begin(), result.end(), 0);
  return result;
}

struct Builder {
  const ReplicaOptions& options;
  ExchangeMemory memory;
  int me = options.replica;

  // A plan without parts if this replica does not hold the bucket. `alone`: as if it were the only holder. Of every shard only
  // part number `part` of `parts`.
  ReducePlan reduce(const Bucket& bucket, const Pieces& source, const Pieces* shard, bool all, bool alone, int part = 0,
                    int parts = 1) const {
    ReducePlan plan;
    if (bucket.number_of(me) < 0) {
      return plan;
    }
    plan.holders = alone ? std::vector<int>{me} : bucket.holders;
    plan.number = alone ? 0 : bucket.number_of(me);
    plan.all = all;
    plan.add = shard != nullptr;
    const auto peers = static_cast<std::int64_t>(plan.holders.size()) - 1;
    if (peers == 0) {
      if (part > 0) return {};
      // No message: only the scale.
      plan.parts.push_back(MessagePart{source, bucket.floats, -1});
      plan.result = shard != nullptr ? *shard : source;
      return plan;
    }
    const auto begin = [&](int h, int of_part) {
      const std::int64_t first = bucket.shard_begin(h);
      return first + part_begin(bucket.shard_end(h) - first, of_part, parts);
    };
    for (int h = 0; h <= peers; ++h) {
      plan.parts.push_back(make_part(source, begin(h, part), begin(h, part + 1), memory, plan.slot_floats));
    }
    const std::int64_t from = begin(plan.number, part), to = begin(plan.number, part + 1);
    const std::int64_t start = bucket.shard_begin(plan.number);
    plan.result = merged(shard != nullptr ? cut(*shard, from - start, to - start) : cut(source, from, to));
    plan.received = plan.slot_floats;
    plan.slot_floats += peers * (to - from);
    return plan;
  }

  // Every holder sends its shard to `peers` and the shards of the other holders come to where `target` says; with `local` the
  // own one, too.
  GatherPlan shards(const Bucket& bucket, const std::vector<int>& replicas, const Pieces& source, const Pieces& target,
                    bool local) const {
    GatherPlan plan;
    const int number = bucket.number_of(me);
    if (std::find(replicas.begin(), replicas.end(), me) == replicas.end()) {
      return plan;
    }
    const int holders = static_cast<int>(bucket.holders.size());
    for (int h = 0; h < holders; ++h) {
      const std::int64_t begin = bucket.shard_begin(h);
      const std::int64_t end = bucket.shard_end(h);
      if (begin == end) {
        continue;
      }
      if (h != number) {
        plan.receives.push_back(
            {bucket.holders[static_cast<std::size_t>(h)], make_part(target, begin, end, memory, plan.slot_floats)});
        continue;
      }
      plan.source = local ? make_part(source, 0, end - begin, memory, plan.slot_floats)
                          : make_part(source, begin, end, memory, plan.slot_floats);
      plan.peers = others(replicas, me);
      if (local) {
        plan.local = merged(cut(target, begin, end));
      }
    }
    return plan;
  }

  // Holder `sender` sends all of the bucket to those that do not hold it.
  GatherPlan broadcast(const Bucket& bucket, int sender, const Pieces& source, const Pieces& target, bool local) const {
    GatherPlan plan;
    if (bucket.number_of(me) < 0) {
      plan.receives.push_back({sender, make_part(target, 0, bucket.floats, memory, plan.slot_floats)});
      return plan;
    }
    if (me == sender) {
      plan.peers = non_holders(bucket, options.replicas);
    }
    if (local || !plan.peers.empty()) {
      plan.source = make_part(source, 0, bucket.floats, memory, plan.slot_floats);
    }
    if (local) {
      plan.local = merged(target);
    }
    return plan;
  }
};

template <class Plan>
std::int64_t most(const std::vector<Plan>& plans) {
  std::int64_t floats = 0;
  for (const Plan& plan : plans) floats = std::max(floats, plan.slot_floats);
  return floats;
}

}  // namespace

void require_exchange_sense(const ReplicaOptions& options) {
  if (options.sharded() && options.averages()) {
    throw InputError(
        "parameters cannot be averaged among replicas that hold shards of them: set sdp.period = 0, or do not "
        "shard the units");
  }
}

ExchangePlans::ExchangePlans(const ExchangeLayout& layout) {
  const ReplicaOptions& options = layout.options;
  require_exchange_sense(options);
  const Builder build{options, layout.memory};
  const bool averaging = options.averages();
  const bool all_reduce = !options.sharded() && options.mode != ReplicaMode::zero1;
  for (const Bucket& bucket : layout.buckets) {
    const Pieces shard = run(bucket.shard_offset, bucket.shard(options.replica).floats());
    std::vector<ReducePlan>& sums = gradients.emplace_back();
    const int parts = options.sharded() ? transfers_in_flight : 1;
    for (int part = 0; part < parts; ++part) {
      sums.push_back(build.reduce(bucket, bucket.gradients, reduces_layer_buffers(options) ? &shard : nullptr, all_reduce,
                                  averaging, part, parts));
    }
    averages.push_back(averaging ? build.reduce(bucket, bucket.parameters, nullptr, true, false) : ReducePlan{});
    if (options.mode == ReplicaMode::zero1) {
      weights.push_back(build.shards(bucket, bucket.holders, bucket.parameters, bucket.parameters, false));
    } else if (options.sdp() && options.backward_masking && !options.sharded()) {
      weights.push_back(build.broadcast(bucket, bucket.sender, bucket.parameters, bucket.parameters, false));
    } else {
      weights.emplace_back();
    }
  }
  const std::vector<int> everyone = all_of(options.replicas);
  layers.resize(layout.layers.size());
  evaluation.resize(layout.layers.size());
  for (std::size_t l = 0; l < layout.layers.size(); ++l) {
    for (const Bucket& bucket : layout.layers[l]) {
      if (options.sharded()) {
        const Pieces shard = run(bucket.shard_offset, bucket.shard(options.replica).floats());
        layers[l].push_back(build.shards(bucket, options.sdp() && options.backward_masking ? everyone : bucket.holders, shard,
                                         bucket.parameters, true));
        evaluation[l].push_back(build.shards(bucket, everyone, shard, bucket.full, true));
      } else {
        layers[l].emplace_back();
        // Every replica of ddp and zero1 has all weights: nothing is to be assembled. Of holders that are averaged now and then
        // the first one counts, whose parameters are stored, too.
        evaluation[l].push_back(options.sdp()
                                    ? build.broadcast(bucket, bucket.holders.front(), bucket.parameters, bucket.full, true)
                                    : GatherPlan{});
      }
    }
  }
  reduce_slot_floats = most(averages);
  for (const std::vector<ReducePlan>& sums : gradients) reduce_slot_floats = std::max(reduce_slot_floats, most(sums));
  gather_slot_floats = most(weights);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    gather_slot_floats = std::max({gather_slot_floats, most(layers[l]), most(evaluation[l])});
  }
}

std::size_t exchange_bytes(const ExchangeLayout& layout) {
  const ExchangePlans plans(layout);
  return exchange_bytes(plans.reduce_slot_floats, plans.gather_slot_floats, layout.memory);
}

std::size_t exchange_bytes(std::int64_t reduce_slot_floats, std::int64_t gather_slot_floats, ExchangeMemory memory) {
  return Staging::bytes(transfers_in_flight, reduce_slot_floats, memory) +
         Staging::bytes(transfers_in_flight, gather_slot_floats, memory);
}

std::uint64_t fingerprint(const ExchangeLayout& layout) {
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  const auto mix = [&hash](std::int64_t number) {
    for (int byte = 0; byte < 8; ++byte) {
      hash = (hash ^ (static_cast<std::uint64_t>(number) >> (8 * byte) & 0xFF)) * 1099511628211ULL;
    }
  };
  const auto mix_bucket = [&mix](const Bucket& bucket) {
    mix(bucket.floats);
    mix(bucket.first_layer);
    mix(bucket.last_layer);
    mix(bucket.sender);
    mix(static_cast<std::int64_t>(bucket.holders.size()));
    for (const int holder : bucket.holders) mix(holder);
  };
  const ReplicaOptions& o = layout.options;
  for (const std::int64_t option :
       {std::int64_t{static_cast<int>(o.mode)}, std::int64_t{o.replicas}, std::int64_t{o.sharded()},
        std::int64_t{o.reduce_per_microbatch}, std::int64_t{o.backward_masking}, o.average_period, o.refresh_period}) {
    mix(option);
  }
  for (const Bucket& bucket : layout.buckets) mix_bucket(bucket);
  for (const auto& layer : layout.layers) {
    mix(static_cast<std::int64_t>(layer.size()));
    for (const Bucket& bucket : layer) mix_bucket(bucket);
  }
  return hash;
}

}  // namespace minipipe::core
