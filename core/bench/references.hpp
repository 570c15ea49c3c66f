#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/bench/measure.hpp"
#include "core/model/flops.hpp"
#include "core/model/model_config.hpp"

namespace minipipe::core {

// A product whose rate kernels are compared with.
struct GemmReference {
  std::string name;
  GemmShape shape;
  bool bf16 = false;  // of bf16 matrices; else of float
  double gflops = 0;  // 10^9 operations per second: the best of several repetitions, measured before and after all else
  double drift = 0;   // relative difference of the two measurements: how much the machine changed meanwhile
};

// The products of a step by size: every linear layer's forward, its two gradients, and the head's. Of layers the model has.
std::vector<GemmShape> step_gemms(const ModelConfig& model, const TrainShape& shape);

// Of those, the one nearest to a cube: the one with the most operations among those whose sides differ by a factor of two at
// most, or where there is none, the one whose sides differ least.
GemmShape cubic_gemm(const ModelConfig& model, const TrainShape& shape);

// Rates of this process with its threads.
class References {
 public:
  References(const ExecutionSpace& space, int repeat) : space_(space), repeat_(repeat) {}

  // The hidden layer's and the cubic one, `with_bf16` also the hidden layer's of bf16. The second call, at the end, keeps the
  // better rate of each.
  void measure_gemms(const ModelConfig& model, const TrainShape& shape, bool with_bf16 = false);
  const std::vector<GemmReference>& gemms() const { return gemms_; }
  double gemm_gflops() const { return gemms_.at(0).gflops; }
  double bf16_gemm_gflops() const { return gemms_.at(2).gflops; }

  // 10^9 bytes per second, read and written, of a copy between two arrays of `bytes` together: the limit for kernels that touch
  // as much. The best of the samples, as the limit that it is. The lines that a store reads first are not counted, neither here
  // nor for kernels: one that works in place and so reads none can reach up to 1.5 times this rate. Measured when first asked.
  double copy_rate(std::int64_t bytes);
  const std::map<std::int64_t, double>& copies() const { return copies_; }

 private:
  ExecutionSpace space_;
  int repeat_;
  std::vector<GemmReference> gemms_;
  std::map<std::int64_t, double> copies_;
};

}  // namespace minipipe::core
