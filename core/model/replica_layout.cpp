#include "core/model/replica_layout.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>

#include "core/model/padding.hpp"

namespace minipipe::core {

namespace {

std::atomic<std::int64_t> layouts_made = 0, tensors_placed = 0;

// The different sets of holders, ascending.
class HolderSets {
 public:
  HolderSets(const std::vector<ParameterEntry>& full, const ReplicaOptions& options) {
    std::map<std::vector<int>, int> numbers;
    for (const ParameterEntry& entry : full) {
      for (const Slab& slab : entry.slabs) {
        if (by_unit_.emplace(slab.unit, 0).second) numbers.emplace(holders_of(slab.unit, options), 0);
      }
    }
    for (auto& [holders, number] : numbers) {
      number = static_cast<int>(sets_.size());
      sets_.push_back(holders);
    }
    for (auto& [unit, number] : by_unit_) number = numbers.at(holders_of(unit, options));
  }

  int number(int unit) const { return by_unit_.at(unit); }
  const std::vector<int>& operator[](int number) const { return sets_[static_cast<std::size_t>(number)]; }

 private:
  std::map<int, int> by_unit_;
  std::vector<std::vector<int>> sets_;
};

// A slab with what decides about its bucket.
struct Part {
  int layer = 0;
  int holders = 0;  // number of the set
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
std::vector<Part> parts_of(const std::vector<ParameterEntry>& full, const HolderSets& sets) {
  std::vector<Part> parts;
  for (std::size_t e = 0; e < full.size(); ++e) {
    for (const Slab& slab : full[e].slabs) {
      parts.push_back({full[e].layer, sets.number(slab.unit), floats_of(full[e], slab), static_cast<int>(e), slab});
    }
  }
  return parts;
}

// Where the tensors of a list lie, which ascend by global_index.
class Places {
 public:
  explicit Places(const std::vector<ParameterEntry>& entries) : entries_(entries) {}

  // Nothing if the list has not all of these slabs.
  Pieces pieces(const std::vector<ParameterEntry>& full, const std::vector<BucketSlab>& slabs) const {
    Pieces result;
    for (const BucketSlab& part : slabs) {
      const ParameterEntry* entry = entry_of(full.at(part.entry).global_index);
      const Slab* same = entry == nullptr ? nullptr : slab_of(*entry, part.slab);
      if (same == nullptr) return {};
      const std::int64_t stride = matrix_shape(entry->shape).columns, start = static_cast<std::int64_t>(entry->offset);
      if (whole(*entry, *same)) {
        result.push_back({start, 1, part.end - part.begin, 0});
      } else {
        result.push_back({start + same->row * stride + same->column, same->rows, same->columns, stride});
      }
    }
    return merged(result);
  }

 private:
  const ParameterEntry* entry_of(int global_index) const {
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), global_index,
                                        [](const ParameterEntry& entry, int index) { return entry.global_index < index; });
    return found == entries_.end() || found->global_index != global_index ? nullptr : &*found;
  }

  static const Slab* slab_of(const ParameterEntry& entry, const Slab& wanted) {
    const auto place = [](const Slab& slab) { return std::tuple(slab.full_row, slab.full_column); };
    const auto found = std::lower_bound(entry.slabs.begin(), entry.slabs.end(), wanted,
                                        [&](const Slab& a, const Slab& b) { return place(a) < place(b); });
    return found == entry.slabs.end() || place(*found) != place(wanted) ? nullptr : &*found;
  }

  const std::vector<ParameterEntry>& entries_;
};

// Of parts with the same holders, in ascending order.
Bucket bucket_of(const std::vector<Part>& parts, const HolderSets& sets) {
  Bucket bucket;
  bucket.holders = sets[parts.front().holders];
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
std::vector<Bucket> buckets_of_layer(const std::vector<Part>& parts, const HolderSets& sets) {
  std::vector<std::vector<Part>> groups;
  std::map<int, std::size_t> group_of;  // by holders
  for (const Part& part : parts) {
    const auto [group, added] = group_of.emplace(part.holders, groups.size());
    if (added) groups.emplace_back();
    groups[group->second].push_back(part);
  }
  std::vector<Bucket> buckets;
  for (const auto& group : groups) buckets.push_back(bucket_of(group, sets));
  return buckets;
}

// In the order in which their gradients are complete.
std::vector<Bucket> buckets_of_stage(const std::vector<Part>& parts, const HolderSets& sets, std::int64_t most_floats) {
  std::vector<Bucket> buckets;
  struct Group {
    std::vector<Part> parts;  // in descending order
    std::int64_t floats = 0;
  };
  std::map<int, Group> open;  // by holders
  const auto close = [&](Group& group) {
    std::reverse(group.parts.begin(), group.parts.end());
    if (!group.parts.empty()) buckets.push_back(bucket_of(group.parts, sets));
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
  const auto found = std::lower_bound(holders.begin(), holders.end(), replica);
  return found == holders.end() || *found != replica ? -1 : static_cast<int>(found - holders.begin());
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
  ++layouts_made;
  const int count = StageLayerNumbers::count(stage);
  place(full, true);
  full_layer_floats = layer_floats(full, count);
  const HolderSets sets(full, options);
  const std::vector<Part> parts = parts_of(full, sets);
  const Places in_full(full);
  const auto locate = [&](Bucket& bucket) {
    if (bucket.first_layer == bucket.last_layer) bucket.full = in_full.pieces(full, bucket.slabs);
  };
  layers.resize(static_cast<std::size_t>(count));
  const auto parts_of_layer = by_layer(parts, count);
  for (int l = count - 1; l >= 0; --l) {
    layers[l] = buckets_of_layer(parts_of_layer[l], sets);
    for (Bucket& bucket : layers[l]) locate(bucket);
    if (options.sharded()) buckets.insert(buckets.end(), layers[l].begin(), layers[l].end());
  }
  if (!options.sharded()) {
    buckets = buckets_of_stage(parts, sets, options.bucket_floats);
    for (Bucket& bucket : buckets) locate(bucket);
  }
  choose_senders(buckets, options.replicas);
  if (options.sdp()) units_ = options.masks.units_of(options.replica);
  place_tensors();
  place_shards();
}

bool ReplicaLayout::move_to(int replica) {
  options.replica = replica;
  std::vector<int> units;
  if (options.sdp()) units = options.masks.units_of(replica);
  const bool others = units != units_;
  if (others) {
    units_ = std::move(units);
    place_tensors();
  }
  place_shards();
  return others;
}

void ReplicaLayout::place_tensors() {
  ++tensors_placed;
  const bool sharded = options.sharded();
  const int count = static_cast<int>(layers.size());
  forward = options.forward_masking() ? held_parameter_list(full, options) : full;
  trained = options.sdp() ? held_parameter_list(full, options) : full;
  place(forward, sharded);
  place(trained, sharded);
  forward_layer_floats = layer_floats(forward, count);
  trained_layer_floats = layer_floats(trained, count);
  gradient_layer_offsets.assign(layers.size(), 0);
  if (sharded && !options.reduce_per_microbatch) {
    for (int l = 1; l < count; ++l) gradient_layer_offsets[l] = gradient_layer_offsets[l - 1] + trained_layer_floats[l - 1];
  }
  const Places in_forward(forward), in_trained(trained);
  const auto locate = [&](Bucket& bucket) {
    bucket.parameters = in_forward.pieces(full, bucket.slabs);
    bucket.gradients = in_trained.pieces(full, bucket.slabs);
  };
  for (auto& layer : layers) std::for_each(layer.begin(), layer.end(), locate);
  std::for_each(buckets.begin(), buckets.end(), locate);
}

void ReplicaLayout::place_shards() {
  const bool sharded = options.sharded();
  // Shards lie behind each other at multiples of 16 floats.
  Layout shards;
  if (sharded || zero1()) {
    for (Bucket& bucket : buckets) {
      const bool held = bucket.number_of(options.replica) >= 0;
      bucket.shard_offset =
          held ? static_cast<std::int64_t>(shards.take(static_cast<std::size_t>(bucket.shard(options.replica).floats()))) : -1;
    }
  }
  if (sharded) {
    // The same buckets, head first.
    auto bucket = buckets.begin();
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      for (Bucket& same : *layer) same.shard_offset = (bucket++)->shard_offset;
    }
  }
  const auto shard_floats = static_cast<std::int64_t>(shards.end());
  parameter_floats = sharded ? shard_floats : sum(forward_layer_floats);
  gradient_floats = sharded_gradients() ? shard_floats : sum(trained_layer_floats);
  moment_floats = sharded || zero1() ? shard_floats : sum(trained_layer_floats);
}

ReplicaLayout::Work ReplicaLayout::work() { return {layouts_made, tensors_placed}; }

}  // namespace minipipe::core
