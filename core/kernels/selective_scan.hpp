#pragma once

#include <type_traits>

#include "core/kernels/attention.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// The selective state-space recurrence of Mamba-2 (Dao, Gu, arXiv 2405.21060), H heads of P features with an S x P state each:
//   h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t^T,   y_t = h_t^T C_t + D x_t,   h before the first position is zero,
// with dt = softplus(raw dt + dt_bias) and A = -exp(a_log) per head. B_t and C_t [S] belong to a group of adjacent heads: head
// h uses group h / (H / G). Sequences are independent of each other.
struct ScanShape {
  std::int64_t batch = 0;      // B
  std::int64_t sequence = 0;   // T
  std::int64_t heads = 0;      // H
  std::int64_t head_size = 0;  // P
  std::int64_t groups = 0;     // G, divides H
  std::int64_t state = 0;      // S
};

// What depends on the position, or its gradients; row b*T + t: x [B*T, H P], raw dt [B*T, H], b and c [B*T, G S]. Each may be
// some columns of a wider array, such as the output of one projection.
template <class T>
struct ScanInputs {
  Columns<T> x, dt, b, c;

  template <class U>
  requires std::is_same_v<U, const T>
  operator ScanInputs<U>() const {
    const auto read_only = [](const Columns<T>& v) { return Columns<U>{v.data, v.rows, v.columns, v.stride}; };
    return {read_only(x), read_only(dt), read_only(b), read_only(c)};
  }
};

// a_log, d and dt_bias [H] each, or their gradients.
template <class T>
struct ScanParameters {
  Vector<T> a_log, d, dt_bias;

  template <class U>
  requires std::is_same_v<U, const T>
  operator ScanParameters<U>() const { return {a_log, d, dt_bias}; }
};

// Positions between two kept states.
inline constexpr std::int64_t scan_chunk = 32;

// Elements of what the forward keeps: the state at the end of each chunk, [B, H, ceil(T / scan_chunk), S, P].
std::int64_t scan_states(const ScanShape& shape);
// Elements of the backward's workspace: gradients of b and c by head, before the sum over the heads of a group; on a device
// also what the teams need that work at a time, whose number is bounded.
std::int64_t scan_workspace(const ScanShape& shape);
// Elements of `sums`: the gradients of a_log, d and dt_bias by sequence and head, [B, H, 3].
std::int64_t scan_sums(const ScanShape& shape);

// T is the type in which what depends on the position is stored; parameters and states are Compute<T>.
// out [B*T, H P] = y. Throws RunError if the shapes do not fit.
template <class T>
void selective_scan_forward(const ExecutionSpace& space, Matrix<T> out, Vector<Compute<T>> states,
                            const ScanInputs<const T>& inputs, const ScanParameters<const Compute<T>>& parameters,
                            const ScanShape& shape);

// Writes the gradients of the inputs, and `sums` for the gradients of the parameters. States within a chunk are computed again
// from the one kept before it. x's gradient may be the same memory as output_gradient.
template <class T>
void selective_scan_backward_input(const ExecutionSpace& space, const ScanInputs<T>& gradients, Vector<Compute<T>> sums,
                                   ConstMatrix<T> output_gradient, const ScanInputs<const T>& inputs,
                                   const ScanParameters<const Compute<T>>& parameters, ConstVector<Compute<T>> states,
                                   Vector<Compute<T>> workspace, const ScanShape& shape);

// Adds to the gradients of the parameters, which are float or double: over the sequences in ascending order.
template <class T>
void selective_scan_backward_parameters(const ExecutionSpace& space, const ScanParameters<T>& gradients, ConstVector<T> sums,
                                        const ScanShape& shape);

}  // namespace minipipe::core
