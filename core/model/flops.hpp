#pragma once

#include <cstdint>

#include "core/model/model_config.hpp"
#include "core/model/partition.hpp"
#include "core/model/replication.hpp"

namespace minipipe::core {

// Floating-point operations of the matrix products of a layer's forward, per token. A mixture of experts: of the router and of
// the chosen experts. A state space: the short convolution and the scan's two products with the state (S numbers for each
// feature) count too.
double block_flops_per_token(const ModelConfig& model, int sequence, LayerKind kind);

// Floating-point operations (a multiply-add counts two) of all matrix products of one microbatch, forward and backward.
// Attention: the unmasked half of scores and context only; what a backward computes again is not counted. The
// backward of a product is two products of the same size.
double flops_per_microbatch(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers);
double flops_per_microbatch(const ModelConfig& model, const TrainShape& shape);

// Of these what one replica does under SDP: products of what it does not compute, and weight gradients of what it does not
// train, are left out. The whole number without.
double active_flops_per_microbatch(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers,
                                   const ReplicaOptions& replication);

// What one replica does of the matrix products of a stage's blocks, as shares of the full blocks'.
struct BlockProducts {
  double computed = 1;  // in a forward, and in the input half of a backward
  double trained = 1;   // in the weight half of a backward
};
BlockProducts held_products(const ModelConfig& model, const TrainShape& shape, const StageLayers& layers,
                            const ReplicaOptions& replication);

// The product of the largest hidden linear layer (the first of the MLP): c[m, n] = a[m, k] b[n, k]^T.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
};
GemmShape largest_hidden_gemm(const ModelConfig& model, const TrainShape& shape);

}  // namespace minipipe::core
