#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/model/model_config.hpp"
#include "core/model/partition.hpp"

namespace minipipe::core {

// Seconds of one kind of work by type of layer. `received` stands for what a stage does instead of a missing layer: in a
// forward it copies the activation of the stage before (no embedding), in a backward the gradient of the stage after (no head).
struct LayerTimes {
  double embedding = 0;
  std::array<double, layer_kinds> layers{};  // one layer of each LayerKind
  double head = 0;
  double received = 0;

  double& of(LayerKind kind) { return layers[static_cast<std::size_t>(kind)]; }
  double of(LayerKind kind) const { return layers[static_cast<std::size_t>(kind)]; }
};

// Which end of a stage copies a message in.
enum class Receives { activation, gradient, nothing };

// How many layers of each type a stage has.
struct LayerCounts {
  bool embedding = false;
  std::array<int, layer_kinds> layers{};
  bool head = false;

  int& of(LayerKind kind) { return layers[static_cast<std::size_t>(kind)]; }
  int of(LayerKind kind) const { return layers[static_cast<std::size_t>(kind)]; }
  int all() const;  // without embedding and head
  friend bool operator==(const LayerCounts&, const LayerCounts&) = default;
};
LayerCounts count_layers(const ModelConfig& model, const StageLayers& layers);
// Of the whole model.
LayerCounts count_layers(const ModelConfig& model);

// The measured seconds of a whole stage.
struct StageTiming {
  LayerCounts layers;
  double seconds = 0;
  double weight = 1;  // of its relative error
};

// Seconds of a whole stage made of such layers.
double stage_seconds(const LayerTimes& times, const LayerCounts& layers, Receives receives);

struct LayerSolution {
  LayerTimes times;
  // Unknowns whose sum alone follows from the stages, in groups: "embedding + head". Empty if the stages tell all of their
  // layers apart. A type of layer that no stage has is in no group; its time is 0.
  std::vector<std::string> undetermined;
};

// The layers' seconds whose sums come nearest to the measured stages (least relative squares; one equation for each stage, from
// however many partitions of the model). What the stages cannot tell apart is charged to the layer named first in LayerTimes:
// embedding and head if they are always together. No layer's time is negative. Throws RunError if there are no timings or one
// is not positive.
LayerSolution solve_layers(const std::vector<StageTiming>& stages, Receives receives);

}  // namespace minipipe::core
