#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/model/replica_layout.hpp"

namespace minipipe::core {

inline int units_of_stage(const ReplicaOptions& options, const StageLayers& layers) {
  if (options.unit == SdpUnit::block) return layers.blocks;
  return options.unit == SdpUnit::sublayer ? 2 * layers.blocks : options.neuron_groups * layers.blocks;
}

// Worker w of n holds `held` units of each block (neurons) or of the stage, round the circle from the wth on.
inline void give_masks(ReplicaOptions& options, const StageLayers& layers, double coverage) {
  const int units = units_of_stage(options, layers);
  const int period = options.unit == SdpUnit::neuron ? options.neuron_groups : units;
  options.masks.workers = options.replicas;
  options.masks.holders.assign(units, {});
  const int held = std::max(1, static_cast<int>(coverage * period + 0.5));
  for (int w = 0; w < options.replicas; ++w) {
    for (int unit = 0; unit < units; ++unit) {
      if ((unit % period + period - w * period / options.replicas) % period < held) options.masks.holders[unit].push_back(w);
    }
  }
}

// A way to share parameters among three replicas.
struct ReplicaCase {
  std::string name;
  ReplicaOptions options;
  double coverage = 0;
};

inline std::vector<ReplicaOptions> replicas_of(const ReplicaCase& test, const StageLayers& layers) {
  std::vector<ReplicaOptions> result;
  for (int r = 0; r < test.options.replicas; ++r) {
    result.push_back(test.options);
    result.back().replica = r;
    if (test.options.sdp()) give_masks(result.back(), layers, test.coverage);
  }
  return result;
}

// Every mode, every unit, both maskings, sharded or not, small buckets and large ones.
inline std::vector<ReplicaCase> all_replica_cases() {
  std::vector<ReplicaCase> cases;
  for (const std::int64_t floats : {1 << 10, 1 << 20}) {
    const std::string size = floats > 4096 ? " large" : " small";
    for (const ReplicaMode mode : {ReplicaMode::ddp, ReplicaMode::zero1, ReplicaMode::fsdp}) {
      for (const bool reduce : {true, false}) {
        if (!reduce && mode != ReplicaMode::fsdp) continue;
        const ReplicaOptions options{.mode = mode, .replicas = 3, .bucket_floats = floats, .reduce_per_microbatch = reduce};
        cases.push_back({"mode " + std::to_string(static_cast<int>(mode)) + (reduce ? "" : " per window") + size, options, 1});
      }
    }
    for (const SdpUnit unit : {SdpUnit::block, SdpUnit::sublayer, SdpUnit::neuron}) {
      for (const bool backward : {false, true}) {
        for (const int sharded : {0, 1, 2}) {
          const ReplicaOptions options{.mode = ReplicaMode::sdp,
                                       .replicas = 3,
                                       .bucket_floats = floats,
                                       .reduce_per_microbatch = sharded != 2,
                                       .unit = unit,
                                       .neuron_groups = 6,
                                       .backward_masking = backward,
                                       .sharded_units = sharded > 0};
          cases.push_back({"sdp unit " + std::to_string(static_cast<int>(unit)) + (backward ? " backward" : " forward") +
                               " sharded " + std::to_string(sharded) + size,
                           options, 0.67});
        }
      }
    }
  }
  return cases;
}

}  // namespace minipipe::core
