#include "core/model/replica_layout.hpp"

#include <algorithm>
#include <map>

#include "core/model/padding.hpp"

namespace minipipe::core {

namespace {

// A slab with what decides about its bucket.
struct Part {
  int layer = 0;
  std::vector<int> holders;
  std::int64_t floats = 0;
  int entry = 0;
  Slab slab;
};

bool whole(const ParameterEntry& entry, const Slab& slab) {
  const MatrixShape full = matrix_shape(entry.full_shape);
  return slab.rows == full.rows && slab.columns == full.columns;
}

std::int64_t floats_of(const ParameterEntry& entry, const Slab& slab) {
  if (whole(entry, slab)) return static_cast<std::int64_t>(padded(entry.size));
  return static_cast<std::int64_t>(slab.rows) * slab.columns;
}

// In ascending order.
std::vector<Part> parts_of(const std::vector<ParameterEntry>& full, const ReplicaOptions& options) {
  std::vector<Part> parts;
  for (std::size_t e = 0; e < full.size(); ++e) {
    for (const Slab& slab : full[e].slabs) {
      parts.push_back({full[e].layer, holders_of(slab.unit, options), floats_of(full[e], slab), static_cast<int>(e), slab});
    }
  }
  return parts;
}

// Where the tensors of a list lie.
class Places {
 public:
  explicit Places(const std::vector<ParameterEntry>& entries) {
    for (const ParameterEntry& entry : entries) by_index_[entry.global_index] = &entry;
  }

  // Nothing if the list has not all of these slabs.
  Pieces pieces(const std::vector<ParameterEntry>& full, const std::vector<BucketSlab>& slabs) const {
    Pieces result;
    for (const BucketSlab& part : slabs) {
      const auto found = by_index_.find(full.at(part.entry).global_index);
      if (found == by_index_.end()) return {};
      const ParameterEntry& entry = *found->second;
      const auto same = std::find_if(entry.slabs.begin(), entry.slabs.end(), [&](const Slab& slab) {
        return slab.full_row == part.slab.full_row && slab.full_column == part.slab.full_column;
      });
      if (same == entry.slabs.end()) return {};
      const std::int64_t stride = matrix_shape(entry.shape).columns, start = static_cast<std::int64_t>(entry.offset);
      if (whole(entry, *same)) {
        result.push_back({start, 1, part.end - part.begin, 0});
      } else {
        result.push_back({start + same->row * stride + same->column, same->rows, same->columns, stride});
      }
    }
    return merged(result);
  }

 private:
  std::map<int, const ParameterEntry*> by_index_;
};

// Of parts with the same holders, in ascending order.
Bucket bucket_of(const std::vector<Part>& parts) {
  Bucket bucket;
  bucket.holders = parts.front().holders;
  bucket.first_layer = parts.front().layer;
  bucket.last_layer = parts.back().layer;
  bucket.sender = bucket.holders.front();
  for (const Part& part : parts) {
    bucket.slabs.push_back({part.entry, part.slab, bucket.floats, bucket.floats + part.floats});
    bucket.floats += part.floats;
  }
  return bucket;
}

// The order is kept.
std::vector<std::vector<Part>> by_layer(const std::vector<Part>& parts, int layers) {
  std::vector<std::vector<Part>> result(static_cast<std::size_t>(layers));
  for (const Part& part : parts) result[part.layer].push_back(part);
  return result;
}

// Of the parts of a layer: one bucket per set of holders, in the order of the first element of each.
std::vector<Bucket> buckets_of_layer(const std::vector<Part>& parts) {
  std::vector<std::vector<Part>> groups;
  for (const Part& part : parts) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.front().holders == part.holders; });
    if (group == groups.end()) group = groups.insert(groups.end(), std::vector<Part>());
    group->push_back(part);
  }
  std::vector<Bucket> buckets;
  for (const auto& group : groups) buckets.push_back(bucket_of(group));
  return buckets;
}

// In the order in which their gradients are complete.
std::vector<Bucket> buckets_of_stage(const std::vector<Part>& parts, std::int64_t most_floats) {
  std::vector<Bucket> buckets;
  struct Group {
    std::vector<Part> parts;  // in descending order
    std::int64_t floats = 0;
  };
  std::map<std::vector<int>, Group> open;  // by holders
  const auto close = [&](Group& group) {
    std::reverse(group.parts.begin(), group.parts.end());
    if (!group.parts.empty()) buckets.push_back(bucket_of(group.parts));
    group = {};
  };
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    Group& group = open[part->holders];
    if (group.floats + part->floats > most_floats) close(group);
    group.parts.push_back(*part);
    group.floats += part->floats;
  }
  for (auto& [holders, group] : open) close(group);
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const Bucket& a, const Bucket& b) { return a.first_layer > b.first_layer; });
  return buckets;
}

// Each in turn is sent by the holder that has the least to send so far.
void choose_senders(std::vector<Bucket>& buckets, int replicas) {
  std::vector<std::int64_t> sent(static_cast<std::size_t>(replicas), 0);
  for (Bucket& bucket : buckets) {
    for (const int holder : bucket.holders) {
      if (sent[holder] < sent[bucket.sender]) bucket.sender = holder;
    }
    sent[bucket.sender] += bucket.floats * (replicas - std::ssize(bucket.holders));
  }
}

std::vector<std::int64_t> layer_floats(const std::vector<ParameterEntry>& entries, int layers) {
  std::vector<std::int64_t> floats(static_cast<std::size_t>(layers), 0);
  for (const ParameterEntry& entry : entries) floats[entry.layer] += static_cast<std::int64_t>(padded(entry.size));
  return floats;
}

std::int64_t sum(const std::vector<std::int64_t>& values) {
  std::int64_t total = 0;
  for (const std::int64_t value : values) total += value;
  return total;
}

}  // namespace

int Bucket::number_of(int replica) const {
  const auto found = std::find(holders.begin(), holders.end(), replica);
  return found == holders.end() ? -1 : static_cast<int>(found - holders.begin());
}

LinearRange Bucket::shard(int replica) const {
  const int number = number_of(replica);
  return number < 0 ? LinearRange{} : LinearRange{shard_begin(number), shard_end(number)};
}

std::int64_t Bucket::shard_begin(int holder) const {
  return part_begin(floats, holder, static_cast<std::int64_t>(holders.size()));
}

ReplicaLayout::ReplicaLayout(const ModelConfig& model, const StageLayers& stage, const ReplicaOptions& given)
    : options(given), full(split_parameter_list(model, stage, given)) {
  const bool sharded = options.sharded();
  const int count = StageLayerNumbers::count(stage);
  forward = options.forward_masking() ? held_parameter_list(full, options) : full;
  trained = options.sdp() ? held_parameter_list(full, options) : full;
  place(full, true);
  place(forward, sharded);
  place(trained, sharded);
  forward_layer_floats = layer_floats(forward, count);
  trained_layer_floats = layer_floats(trained, count);
  full_layer_floats = layer_floats(full, count);
  gradient_layer_offsets.assign(static_cast<std::size_t>(count), 0);
  if (sharded && !options.reduce_per_microbatch) {
    for (int l = 1; l < count; ++l) gradient_layer_offsets[l] = gradient_layer_offsets[l - 1] + trained_layer_floats[l - 1];
  }

  const std::vector<Part> parts = parts_of(full, options);
  const Places in_forward(forward), in_trained(trained), in_full(full);
  const auto locate = [&](Bucket& bucket) {
    bucket.parameters = in_forward.pieces(full, bucket.slabs);
    bucket.gradients = in_trained.pieces(full, bucket.slabs);
    if (bucket.first_layer == bucket.last_layer) bucket.full = in_full.pieces(full, bucket.slabs);
  };
  // Shards lie behind each other at multiples of 16 floats.
  Layout shards;
  const auto shard = [&](Bucket& bucket) {
    if (bucket.number_of(options.replica) < 0) return;
    bucket.shard_offset =
        static_cast<std::int64_t>(shards.take(static_cast<std::size_t>(bucket.shard(options.replica).floats())));
  };
  layers.resize(static_cast<std::size_t>(count));
  const auto parts_of_layer = by_layer(parts, count);
  for (int l = count - 1; l >= 0; --l) {
    layers[l] = buckets_of_layer(parts_of_layer[l]);
    for (Bucket& bucket : layers[l]) {
      locate(bucket);
      if (!sharded) continue;
      shard(bucket);
      buckets.push_back(bucket);
    }
  }
  if (!sharded) {
    buckets = buckets_of_stage(parts, options.bucket_floats);
    for (Bucket& bucket : buckets) {
      locate(bucket);
      if (zero1()) shard(bucket);
    }
  }

  choose_senders(buckets, options.replicas);

  const auto shard_floats = static_cast<std::int64_t>(shards.end());
  parameter_floats = sharded ? shard_floats : sum(forward_layer_floats);
  gradient_floats = sharded_gradients() ? shard_floats : sum(trained_layer_floats);
  moment_floats = sharded || zero1() ? shard_floats : sum(trained_layer_floats);
}

}  // namespace minipipe::core
