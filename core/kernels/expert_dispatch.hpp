#pragma once

#include <vector>

#include "core/types/types.hpp"

// Rows to their experts and back, for R rows with k of E experts each. Nothing is padded and, without a capacity, no row is
// dropped (grouped as in MegaBlocks, Gale et al., arXiv 2211.15841). A pair is a (row, choice), number row*k + choice; a slot
// is a row of the buffer in which the rows of one expert lie together.
namespace minipipe::core {

struct ExpertPlan {
  Vector<std::int32_t> counts;   // [E] pairs that chose the expert, dropped ones included
  Vector<std::int32_t> offsets;  // [E + 1] expert e has the slots offsets[e] .. offsets[e + 1)
  Vector<std::int32_t> slots;    // [R*k] slot of a pair, -1 if dropped
  Vector<std::int32_t> pairs;    // [R*k] pair of a slot, -1 for the slots from offsets[E] on
};

// Pairs an expert takes at most: ceil(factor R k / E), the expert capacity of arXiv 2101.03961, equation 3, for k choices.
std::int64_t expert_capacity(double factor, std::int64_t rows, std::int64_t choices, std::int64_t experts);

// Elements of the workspace of plan_experts.
std::int64_t expert_workspace(std::int64_t rows, std::int64_t experts);

// Fills `plan` for experts [R, k] (a row's choices differ). Slots are in the order of (expert, row), whatever the number of
// threads. With capacity > 0 an expert keeps its first `capacity` rows, those of higher index are dropped; 0: no limit.
void plan_experts(const ExecutionSpace& space, const ExpertPlan& plan, Vector<std::int32_t> workspace,
                  ConstMatrix<std::int32_t> experts, std::int64_t capacity = 0);

// Waits for `space`; offsets [E + 1] on the host, for the products of each expert. Allocates when `host` has another size.
void read_offsets(const ExecutionSpace& space, std::vector<std::int32_t>& host, ConstVector<std::int32_t> offsets);

// The kernels on rows take float, double and bf16; they compute in Compute<T> and round what they store once.

// gathered [R*k, C]: each slot gets its row of input [R, C]. Slots from offsets[E] on are left as they are.
template <class T>
void gather_rows(const ExecutionSpace& space, Matrix<T> gathered, ConstMatrix<T> input, const ExpertPlan& plan);

// input_gradient [R, C] = sum of the gradients of the row's slots, in the order of the choices; with `accumulate` the sum is
// added to input_gradient. Dropped pairs give nothing.
template <class T>
void gather_rows_backward(const ExecutionSpace& space, Matrix<T> input_gradient, ConstMatrix<T> gathered_gradient,
                          const ExpertPlan& plan, bool accumulate);

// out [R, C] = sum over the choices, in order, of weights [R, k] times the slot's row of expert_out [R*k, C].
template <class T>
void combine_rows(const ExecutionSpace& space, Matrix<T> out, ConstMatrix<T> expert_out, ConstMatrix<Compute<T>> weights,
                  const ExpertPlan& plan);

// Writes expert_out_gradient [R*k, C] (slots from offsets[E] on are left as they are) and weights_gradient [R, k], the products
// of output_gradient [R, C] and the experts' rows (zero for dropped pairs). expert_out_gradient may be expert_out.
template <class T>
void combine_rows_backward(const ExecutionSpace& space, Matrix<T> expert_out_gradient, Matrix<Compute<T>> weights_gradient,
                           ConstMatrix<T> output_gradient, ConstMatrix<T> expert_out, ConstMatrix<Compute<T>> weights,
                           const ExpertPlan& plan);

}  // namespace minipipe::core
