#pragma once

namespace minipipe::core {

// What a block does not keep from its forward for its backward, but computes again there, with the weights of the backward:
// nothing; the attention branch up to the attention's output; or everything but the block's input, and where backwards are
// whole the head's norm and logits (Chen et al., arXiv 1604.06174; Korthikanti et al., arXiv 2205.05198). Dropout masks are the
// same both times.
enum class Recompute { none, attention, block };

}  // namespace minipipe::core
