#pragma once

#include <span>

#include "core/types/types.hpp"

namespace minipipe::core {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // decoupled; applied to ranges with decay only
};

// A part of the flat arrays with one treatment.
struct ParameterRange {
  std::int64_t offset = 0;  // in the parameters' array
  std::int64_t count = 0;
  bool decay = false;
  // Where it starts in the other arrays; negative: at `offset`, too.
  std::int64_t second_moment = -1;
  std::int64_t first_moment = -1;
  std::int64_t gradient = -1;
};

// One AdamW step (Loshchilov, Hutter, arXiv 1711.05101) in one pass over the ranges; neighbouring ranges with the same
// treatment are merged. g = gradient_scale gradients; `step` counts from 1 (bias correction).
//   p -= learning_rate (m^ / (sqrt(v^) + epsilon) + weight_decay p)
// All arrays are flat, and as long as the ranges say. The gradients are left as they are.
template <class T>
void adamw_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
                  ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options,
                  double learning_rate, std::int64_t step, double gradient_scale = 1);

// What an update can do while it has the numbers at hand. Then every range is a piece for itself.
template <class T>
struct UpdateExtras {
  // By range: the sums of the squares of the gradients as they lie there, to the last bit those of sums_of_squares(). Empty:
  // none. `workspace`: at least the sum of sum_workspace(count) over the ranges.
  Vector<double> squares{};
  Vector<double> workspace{};
  // By range: where the new parameters go as bf16; an empty one: nowhere. No list: nothing.
  std::span<const Vector<bf16>> copies{};
};

// The same with Nesterov's momentum (Dozat, "Incorporating Nesterov Momentum into Adam", 2016, with a constant beta1 and
// without a schedule of it): m^ becomes beta1 m / (1 - beta1^(step+1)) + (1 - beta1) g / (1 - beta1^step). Decay is decoupled
// as above.
template <class T>
void nadam_update(const ExecutionSpace& space, Vector<T> parameters, Vector<T> first_moment, Vector<T> second_moment,
                  ConstVector<T> gradients, std::span<const ParameterRange> ranges, const AdamWOptions& options,
                  double learning_rate, std::int64_t step, double gradient_scale = 1);

// One of the two, `nesterov` or not, with extras in the same pass.
template <class T>
void update_with_extras(const ExecutionSpace& space, bool nesterov, Vector<T> parameters, Vector<T> first_moment,
                        Vector<T> second_moment, ConstVector<T> gradients, std::span<const ParameterRange> ranges,
                        const AdamWOptions& options, double learning_rate, std::int64_t step, double gradient_scale,
                        const UpdateExtras<T>& extras);

}  // namespace minipipe::core
