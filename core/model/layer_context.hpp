#pragma once

#include <cstdint>

#include "core/kernels/dropout.hpp"
#include "core/model/model_config.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Of LayerNorm in GPT-2 and of RMSNorm in LLaMA 2 and 3.
inline constexpr double norm_epsilon = 1e-5;
inline constexpr double rotary_base = 10000;

// What all layers of a stage have in common while one microbatch passes.
struct LayerContext {
  ExecutionSpace space;
  ModelConfig model;
  TrainShape shape;
  std::uint64_t seed = 0;
  std::int64_t microbatch = 0;
  bool training = true;        // false: no dropout
  double balance_scale = 0.0;  // mixtures of experts: factor of their load-balancing loss in the gradients of this microbatch
  // The gradients of linear layers' matrices are the first since an update: passes overwrite whatever lies there. All other
  // gradients are added to.
  bool fresh_gradients = false;
  ConstMatrix<double> rotary{};  // rotary positions only: the table of core/kernels/rotary.hpp for the sequence

  int rows() const { return shape.rows(); }

  // `place` numbers all places of the unsplit model that drop, so that a mask does not depend on the partition.
  Dropout dropout(int place) const {
    return {training ? model.dropout : 0.0, seed, static_cast<std::uint32_t>(place), static_cast<std::uint32_t>(microbatch)};
  }
};

// Places that drop: the embedding, and three in each block.
inline constexpr int embedding_dropout = 0;
constexpr int attention_dropout(int block) { return 1 + 3 * block; }
constexpr int attention_residual_dropout(int block) { return 2 + 3 * block; }
constexpr int mlp_residual_dropout(int block) { return 3 + 3 * block; }

}  // namespace minipipe::core
