#pragma once

#include <vector>

#include "core/model/partition.hpp"

namespace minipipe::core {

// Seconds of one kind of work by type of layer. `received` stands for what a stage does instead of a missing layer: in a
// forward it copies the activation of the stage before (no embedding), in a backward the gradient of the stage after (no head).
struct LayerTimes {
  double embedding = 0;
  double block = 0;  // one block
  double head = 0;
  double received = 0;
};

// Which end of a stage copies a message in.
enum class Receives { activation, gradient, nothing };

// The measured seconds of a whole stage.
struct StageTiming {
  StageLayers layers;
  double seconds = 0;
  double weight = 1;  // of its relative error
};

// Seconds of a whole stage made of such layers.
double stage_seconds(const LayerTimes& times, const StageLayers& layers, Receives receives);

// The layers' seconds whose sums come nearest to the measured stages (least relative squares). What the stages cannot tell
// apart is charged to the layer named first in LayerTimes: embedding and head if they are always together. No layer's time is
// negative. Throws RunError if there are no timings or one is not positive.
LayerTimes solve_layers(const std::vector<StageTiming>& stages, Receives receives);

}  // namespace minipipe::core
