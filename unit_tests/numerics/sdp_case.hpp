#pragma once

#include <map>
#include <string>
#include <vector>

#include "unit_tests/core/model/replica_group.hpp"
#include "unit_tests/core/model/uneven_tokens.hpp"

namespace minipipe::core::test {

// A unit and a masking of SDP, with masks drawn at random.
struct SdpCase {
  SdpUnit unit = SdpUnit::block;
  bool backward = false;
  int groups = 4;  // of neurons per block

  std::string text() const {
    static const char* const names[] = {"blocks", "sublayers", "neurons"};
    return std::string(names[static_cast<int>(unit)]) + (backward ? ", backward" : ", forward");
  }

  std::vector<ReplicaOptions> replicas(int count, int blocks, double coverage, std::uint64_t seed) const {
    ReplicaOptions options{.mode = ReplicaMode::sdp, .replicas = count, .unit = unit, .neuron_groups = groups};
    options.backward_masking = backward;
    schedules::MaskOptions masks{.workers = count, .coverage = coverage, .generator = schedules::MaskGenerator::random};
    masks.seed = seed;
    masks.units = unit == SdpUnit::block ? blocks : unit == SdpUnit::sublayer ? 2 * blocks : groups;
    options.masks = schedules::make_masks(masks);
    // A worker holds as many groups of each block: the same ones here.
    const auto of_a_block = options.masks.holders;
    for (int b = 1; unit == SdpUnit::neuron && b < blocks; ++b) {
      options.masks.holders.insert(options.masks.holders.end(), of_a_block.begin(), of_a_block.end());
    }
    std::vector<ReplicaOptions> result(static_cast<std::size_t>(count), options);
    for (int r = 0; r < count; ++r) result[static_cast<std::size_t>(r)].replica = r;
    return result;
  }

  // The unit of an element of a tensor, seen as a matrix; -1: all hold it. From the tensor's name alone.
  int unit_of(const std::string& name, int row, int column, int hidden) const {
    const auto number = name.find_first_of("0123456789");
    if (number == std::string::npos) return -1;  // no block's
    const int block = std::stoi(name.substr(number));
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    const bool mlp = has("mlp.") || has("ln_2") || has("post_attention_layernorm");
    if (unit == SdpUnit::block) return block;
    if (unit == SdpUnit::sublayer) return 2 * block + (mlp ? 1 : 0);
    const int per_group = hidden / groups;
    if (has("mlp.c_fc.bias")) return block * groups + column / per_group;
    if (has("mlp.c_fc") || has("mlp.gate_proj") || has("mlp.up_proj")) return block * groups + row / per_group;
    if (has("mlp.c_proj.weight") || has("mlp.down_proj")) return block * groups + column / per_group;
    return -1;
  }
};

inline std::vector<SdpCase> sdp_cases() {
  std::vector<SdpCase> cases;
  for (const SdpUnit unit : {SdpUnit::block, SdpUnit::sublayer, SdpUnit::neuron}) {
    for (const bool backward : {false, true}) cases.push_back({unit, backward});
  }
  return cases;
}

// The first moments by tensor of the unsplit model, each element from its owner.
inline std::map<std::string, std::vector<float>> first_moments(const ReplicaGroup& group) {
  std::map<std::string, std::vector<float>> all;
  for (const auto& stage : group.stages) {
    for (const StoredPart& part : stage->parameters().owned_parts()) {
      if (part.field != StoredField::first_moment) continue;
      std::size_t size = 1;
      for (const int extent : part.full_shape) size *= static_cast<std::size_t>(extent);
      std::vector<float>& tensor = all[part.name];
      tensor.resize(size);
      std::vector<float> values(static_cast<std::size_t>(part.rows) * static_cast<std::size_t>(part.columns));
      read_piece(part.array, part.piece, values.data());
      const int width = part.full_shape.back();
      for (int i = 0; i < part.rows * part.columns; ++i) {
        const int row = part.row + i / part.columns, column = part.column + i % part.columns;
        tensor[static_cast<std::size_t>(row) * width + column] = values[static_cast<std::size_t>(i)];
      }
    }
  }
  return all;
}

}  // namespace minipipe::core::test
