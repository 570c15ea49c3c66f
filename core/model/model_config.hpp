#pragma once

#include <string>

namespace minipipe::core {

// The network of a run, before it is split into stages. Field names are those of the deck's [model] block.
struct ModelConfig {
  std::string family = "gpt2";
  int layers = 0;        // transformer blocks
  int width = 0;         // features per token
  int heads = 0;         // attention heads; width / heads features each
  int vocab = 0;         // tokens are 0 .. vocab-1
  int context = 0;       // rows of the position table: the longest sequence
  bool tied = false;     // the head uses the token embedding's matrix
  double dropout = 0.0;  // probability that an element is dropped, in [0, 1)
};

// What one microbatch looks like.
struct TrainShape {
  int microbatch_size = 0;  // sequences per microbatch
  int sequence = 0;         // tokens per sequence

  int rows() const { return microbatch_size * sequence; }
};

// Throws InputError naming the deck key, its value and the remedy if the model cannot be built or run with this shape on
// this number of stages.
void validate(const ModelConfig& model, const TrainShape& shape, int stages);

}  // namespace minipipe::core
