#pragma once

#include <cstdint>
#include <vector>

#include "core/types/types.hpp"

namespace minipipe::core {

// What a stage asks of its replicas while it works. Layers as in StageLayerNumbers. Calls come from one thread. Every replica's
// stage makes the same calls in the same order. Implemented by core/parallel; a stage without replicas has none.
class LayerExchange {
 public:
  virtual ~LayerExchange() = default;

  // Sharded: returns when the weights of `layer` are in its gathered buffer. Fetching `next` (-1: none) begins, if it is
  // another buffer. What is enqueued on the stage's instance may still use other layers' buffers.
  virtual void fetch(int layer, int next) = 0;

  // The full weights of a layer as its holders have them, in the layout ReplicaLayout::full; for evaluation. Waits. Sharded:
  // the target may be a gathered buffer, so what those have is of no more use.
  virtual void assemble(int layer, const Vector<float>& target) = 0;

  // Sharded: returns when the layer's gradient buffer may be written again, and it is zero.
  virtual void gradient_begins(int layer) = 0;

  // The weight half of the layer's backward of a microbatch is enqueued. `last`: of the window's last microbatch.
  virtual void gradient_done(int layer, bool last) = 0;

  // Moves messages on. False while the gradients of update `update` are on their way.
  virtual bool gradients_ready(std::int64_t update) = 0;

  // The optimizer step of update `update` is enqueued. New weights begin to travel where some do.
  virtual void weights_changed(std::int64_t update) = 0;

  // Moves messages on. False while weights are on their way.
  virtual bool weights_ready() = 0;

  // Each number added up over the replicas in ascending order. Waits.
  virtual std::vector<double> sum_over_replicas(const std::vector<double>& mine) = 0;

  // Moves messages on: between kernels, so that they overlap.
  virtual void progress() = 0;

  // Bytes of its buffers, read from its arrays.
  virtual std::size_t bytes() const = 0;
};

}  // namespace minipipe::core
