#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/model/model_config.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// What a kernel is limited by, and so what its rate is compared with.
enum class Limit { gemm, gemm_bf16, copy };

// One kernel at the shapes of a deck, ready to be called. `run` owns the arrays.
struct KernelCase {
  std::string name;   // component::operation, as in the kernel's label
  std::string shape;  // for people
  Limit limit = Limit::copy;
  bool used = true;  // the deck's model calls it
  // Operations of the matrix products (attention: the unmasked half, nothing that a backward computes again). 0: not counted.
  double flops = 0;
  // Bytes that have to be moved: each array read or written counts once, however often the kernel goes over it.
  double bytes = 0;
  double working_set = 0;  // bytes of the distinct arrays
  std::function<void()> run;
};

// The sizes that cases are made from.
struct BenchShape {
  ModelConfig model;
  TrainShape train;
  std::uint64_t seed = 1;
  bool bf16 = false;  // the deck computes in bf16: so do the cases of linear layers, the others in float

  std::int64_t rows() const { return train.rows(); }
};

// The cases by component; each list owns its memory, so that one after the other is alive. Kernels of branches that no layer of
// the model has are left out.
std::vector<KernelCase> linear_cases(const ExecutionSpace& space, const BenchShape& shape);
std::vector<KernelCase> attention_cases(const ExecutionSpace& space, const BenchShape& shape);
std::vector<KernelCase> expert_cases(const ExecutionSpace& space, const BenchShape& shape);       // router to combination
std::vector<KernelCase> state_space_cases(const ExecutionSpace& space, const BenchShape& shape);  // convolution to norm
std::vector<KernelCase> norm_cases(const ExecutionSpace& space, const BenchShape& shape);
std::vector<KernelCase> elementwise_cases(const ExecutionSpace& space, const BenchShape& shape);
std::vector<KernelCase> end_cases(const ExecutionSpace& space, const BenchShape& shape);  // embedding, cross-entropy
std::vector<KernelCase> adam_cases(const ExecutionSpace& space, const BenchShape& shape);
std::vector<KernelCase> muon_cases(const ExecutionSpace& space, const BenchShape& shape);

// Arrays of normal numbers: zeros may run at a higher clock, denormal numbers at a far lower one.
OwnedVector<float> random_vector(const ExecutionSpace& space, std::int64_t size);
OwnedMatrix<float> random_matrix(const ExecutionSpace& space, std::int64_t rows, std::int64_t columns);
// The same, rounded to T: float or bf16.
template <class T>
OwnedMatrix<T> random_values(const ExecutionSpace& space, std::int64_t rows, std::int64_t columns);
// Tokens 0 .. vocab-1, scattered.
OwnedVector<std::int32_t> random_tokens(std::int64_t count, int vocab);

std::string shape_text(const std::vector<std::int64_t>& extents);  // "512 x 768"

}  // namespace minipipe::core
