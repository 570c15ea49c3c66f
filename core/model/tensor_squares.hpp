#pragma once

namespace minipipe::core {

// A sum of squares over a tensor, or over the part of it that a replica owns.
struct TensorSquares {
  int global_index = 0;  // of the tensor in the unsplit model
  double sum = 0;
};

}  // namespace minipipe::core
