#pragma once

#include <cstdint>

namespace minipipe::schedules {

// The compute of one pipeline stage, as the executor sees it. Slots are small numbers: `slot` names the storage of one live
// microbatch on this stage (0 .. activation_slots-1), `input` and `output` name message slots of the channels next to it.
// They are -1 where the stage has no such neighbour (first stage: no input, last stage: no output).
class Stage {
 public:
  virtual ~Stage() = default;

  // Reads the input message, keeps what the backward needs in `slot`, writes the output message (last stage: the loss).
  virtual void forward(std::int64_t microbatch, int slot, int input, int output) = 0;

  // Input gradient, then weight gradient: reads the gradient message of the next stage, writes that for the previous one.
  virtual void backward(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) {
    backward_input(microbatch, slot, gradient_input, gradient_output);
    backward_weight(microbatch, slot);
  }
  virtual void backward_input(std::int64_t microbatch, int slot, int gradient_input, int gradient_output) = 0;
  virtual void backward_weight(std::int64_t microbatch, int slot) = 0;

  // One optimizer step with the gradients accumulated since the last; `update` counts from 0 over the whole run.
  virtual void update(std::int64_t update) = 0;

  // Data parallelism: both are asked again and again and move messages on. The update waits while the replicas' gradients are
  // on their way; the next forward, backward or end of a segment waits while the new weights are.
  virtual bool gradients_ready(std::int64_t /*update*/) { return true; }
  virtual bool weights_ready() { return true; }

  // Called after every action and before its messages move on: the output is then sent, the input's slot is open for the next
  // message, and the action's time ends. Everything written must be complete, and everything read must have been read.
  virtual void complete_output() {}
};

}  // namespace minipipe::schedules
