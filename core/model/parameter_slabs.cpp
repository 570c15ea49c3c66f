#include <algorithm>
#include <numeric>
#include <string>

#include "core/model/padding.hpp"
#include "core/model/parameter_list.hpp"
#include "schedules/error.hpp"

namespace minipipe::core {

namespace {

void check_masks(const StageLayers& layers, const ReplicaOptions& options) {
  const auto& holders = options.masks.holders;
  const int per_block = options.unit == SdpUnit::block ? 1 : options.unit == SdpUnit::sublayer ? 2 : options.neuron_groups;
  const int units = per_block * layers.blocks;
  if (static_cast<int>(holders.size()) != units || options.masks.workers != options.replicas) {
    throw RunError("masks of " + std::to_string(holders.size()) + " units and " + std::to_string(options.masks.workers) +
                   " replicas were given to a stage with " + std::to_string(units) + " units and " +
                   std::to_string(options.replicas) + " replicas");
  }
}

// The slabs of a tensor cut into neuron groups; neighbours with the same holders are joined.
std::vector<Slab> neuron_slabs(const ParameterEntry& entry, const ReplicaOptions& options) {
  const MatrixShape shape = matrix_shape(entry.full_shape);
  const bool by_row = entry.neurons == NeuronAxis::rows;
  const std::int64_t neurons = by_row ? shape.rows : shape.columns, groups = options.neuron_groups;
  if (groups > neurons) {
    throw RunError(entry.name + " has " + std::to_string(neurons) + " neurons; they make no " + std::to_string(groups) +
                   " groups");
  }
  const int first_unit = (entry.layer - StageLayerNumbers::block(0)) * options.neuron_groups;
  std::vector<Slab> slabs;
  int before = -1;  // the unit of the slab before
  for (std::int64_t group = 0; group < groups; ++group) {
    const int begin = static_cast<int>(group * neurons / groups), end = static_cast<int>((group + 1) * neurons / groups);
    const int unit = first_unit + static_cast<int>(group);
    const std::vector<int>& holders = options.masks.holders.at(static_cast<std::size_t>(unit));
    if (slabs.empty() || holders != options.masks.holders[static_cast<std::size_t>(before)]) {
      Slab slab;
      slab.unit = static_cast<int>(holders.size()) == options.replicas ? -1 : unit;
      (by_row ? slab.row : slab.column) = begin;
      slab.full_row = slab.row;
      slab.full_column = slab.column;
      (by_row ? slab.columns : slab.rows) = by_row ? shape.columns : shape.rows;
      slabs.push_back(slab);
      before = unit;
    }
    (by_row ? slabs.back().rows : slabs.back().columns) += end - begin;
  }
  return slabs;
}

// The unit that a tensor belongs to as a whole.
int unit_of(const ParameterEntry& entry, const StageLayers& layers, const ReplicaOptions& options) {
  const int block = entry.layer - StageLayerNumbers::block(0);
  if (block < 0 || block >= layers.blocks || options.unit == SdpUnit::neuron) return -1;
  const int unit = options.unit == SdpUnit::block ? block : 2 * block + (entry.mlp ? 1 : 0);
  return static_cast<int>(options.masks.holders.at(static_cast<std::size_t>(unit)).size()) == options.replicas ? -1 : unit;
}

bool holds(int unit, const ReplicaOptions& options) { return unit < 0 || options.masks.holds(options.replica, unit); }

}  // namespace

std::vector<int> holders_of(int unit, const ReplicaOptions& options) {
  if (unit >= 0) return options.masks.holders.at(static_cast<std::size_t>(unit));
  std::vector<int> all(static_cast<std::size_t>(options.replicas));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

void place(std::vector<ParameterEntry>& entries, bool by_layer) {
  Layout layout;
  int layer = -1;
  for (ParameterEntry& entry : entries) {
    if (by_layer && entry.layer != layer) layout = {};
    layer = entry.layer;
    entry.offset = layout.take(entry.size);
  }
}

std::vector<ParameterEntry> split_parameter_list(const ModelConfig& model, const StageLayers& layers,
                                                 const ReplicaOptions& options) {
  std::vector<ParameterEntry> entries = parameter_list(model, layers);
  if (!options.sdp()) return entries;
  check_masks(layers, options);
  for (ParameterEntry& entry : entries) {
    if (options.unit == SdpUnit::neuron && entry.neurons != NeuronAxis::none) {
      entry.slabs = neuron_slabs(entry, options);
    } else {
      entry.slabs.front().unit = unit_of(entry, layers, options);
    }
  }
  return entries;
}

std::vector<ParameterEntry> held_parameter_list(const std::vector<ParameterEntry>& split, const ReplicaOptions& options) {
  std::vector<ParameterEntry> entries;
  for (ParameterEntry entry : split) {
    std::erase_if(entry.slabs, [&](const Slab& slab) { return !holds(slab.unit, options); });
    if (entry.slabs.empty()) continue;
    if (entry.neurons != NeuronAxis::none) {
      const bool by_row = entry.neurons == NeuronAxis::rows;
      int neurons = 0;
      for (Slab& slab : entry.slabs) {
        (by_row ? slab.row : slab.column) = neurons;
        neurons += by_row ? slab.rows : slab.columns;
      }
      int& extent = by_row ? entry.shape.front() : entry.shape.back();
      entry.size = entry.size / static_cast<std::size_t>(extent) * static_cast<std::size_t>(neurons);
      extent = neurons;
    }
    entries.push_back(std::move(entry));
  }
  place(entries, false);
  return entries;
}

}  // namespace minipipe::core
